// LAMB: Adam whose step each parameter scales to its own norm (You et al. 2020, Algorithm 2):
// optim/update.h has the formula.
#pragma once

#include "optim/optimizer.h"
#include "optim/update.h"

namespace weft::optim {

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  // Whether parameters of fewer than two dims (biases, scales of norms) have their step scaled,
  // too. The paper scales all; without, these few take AdamW's steps.
  bool adapt_vectors = false;
};

struct LambRule {
  using Options = LambOptions;
  using Step = LambStep;
  static constexpr const char* kName = "lamb";

  static void check(const LambOptions& options);
  // "average" and "square_average".
  static std::span<const std::string_view> state_names(const LambOptions& options);
  static LambStep begin(const LambOptions& options, int64_t steps);
  template <class T>
  static void update(const LambStep& step, T* p, const T* g, void* const* state, int64_t count) {
    lamb_update(step, p, g, static_cast<T*>(state[0]), static_cast<T*>(state[1]), count);
  }

  static bool adapts(const LambOptions& options, int dims);
  template <class T>
  static void direction(const LambStep& step, const T* p, const T* g, void* const* state,
                        int64_t count, T* to) {
    lamb_direction(step, p, g, static_cast<const T*>(state[0]), static_cast<const T*>(state[1]),
                   count, to);
  }
  static void adapt(LambStep& step, double parameter_norm, double direction_norm);
};

using Lamb = OptimizerOf<LambRule>;
extern template class OptimizerOf<LambRule>;

}  // namespace weft::optim
