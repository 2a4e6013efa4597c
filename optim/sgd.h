// Stochastic gradient descent with momentum, as PyTorch defines it: optim/update.h has the formula.
#pragma once

#include "optim/optimizer.h"
#include "optim/update.h"

namespace weft::optim {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // needs a momentum and no dampening
};

struct SgdRule {
  using Options = SgdOptions;
  using Step = SgdStep;
  static constexpr const char* kName = "sgd";

  static void check(const SgdOptions& options);
  // "momentum", if there is one.
  static std::span<const std::string_view> state_names(const SgdOptions& options);
  static SgdStep begin(const SgdOptions& options, int64_t steps);
  template <class T>
  static void update(const SgdStep& step, T* p, const T* g, void* const* state, int64_t count) {
    sgd_update(step, p, g, step.momentum != 0 ? static_cast<T*>(state[0]) : nullptr, count);
  }
};

using Sgd = OptimizerOf<SgdRule>;
extern template class OptimizerOf<SgdRule>;

}  // namespace weft::optim
