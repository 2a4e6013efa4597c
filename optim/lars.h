// LARS: momentum whose rate each parameter scales by the ratio of its norm to its gradient's (You,
// Gitman & Ginsburg 2017, Algorithm 1): optim/update.h has the formula.
#pragma once

#include "optim/optimizer.h"
#include "optim/update.h"

namespace weft::optim {

struct LarsOptions {
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 1e-3;  // the paper's eta
  // Whether parameters of fewer than two dims (biases, scales of norms) have their rate scaled,
  // too. The paper scales all; without, these few take plain steps of lr.
  bool adapt_vectors = false;
};

struct LarsRule {
  using Options = LarsOptions;
  using Step = LarsStep;
  static constexpr const char* kName = "lars";

  static void check(const LarsOptions& options);
  // "momentum", if there is one.
  static std::span<const std::string_view> state_names(const LarsOptions& options);
  static LarsStep begin(const LarsOptions& options, int64_t steps);
  template <class T>
  static void update(const LarsStep& step, T* p, const T* g, void* const* state, int64_t count) {
    lars_update(step, p, g, step.momentum != 0 ? static_cast<T*>(state[0]) : nullptr, count);
  }

  static bool adapts(const LarsOptions& options, int dims);
  template <class T>
  static void direction(const LarsStep&, const T*, const T* g, void* const*, int64_t count, T* to) {
    for (int64_t i = 0; i < count; ++i)
      to[i] = g[i];
  }
  static void adapt(LarsStep& step, double parameter_norm, double gradient_norm);
};

using Lars = OptimizerOf<LarsRule>;
extern template class OptimizerOf<LarsRule>;

}  // namespace weft::optim
