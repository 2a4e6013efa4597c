// Adam, and AdamW with its decoupled weight decay: optim/update.h has formulas and sources.
#pragma once

#include "optim/optimizer.h"
#include "optim/update.h"

#include <optional>

namespace weft::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // Adam adds it to the gradient, AdamW takes it from the parameter: p *= 1 - lr * weight_decay.
  // Unless given: 0 for Adam, 0.01 for AdamW.
  std::optional<double> weight_decay = {};
};

template <bool decoupled>
struct AdamRule {
  using Options = AdamOptions;
  using Step = AdamStep;
  static constexpr const char* kName = decoupled ? "adamw" : "adam";

  static void check(const AdamOptions& options);
  // "average" and "square_average".
  static std::span<const std::string_view> state_names(const AdamOptions& options);
  static AdamStep begin(const AdamOptions& options, int64_t steps);
  template <class T>
  static void update(const AdamStep& step, T* p, const T* g, void* const* state, int64_t count) {
    adam_update(step, p, g, static_cast<T*>(state[0]), static_cast<T*>(state[1]), count);
  }
};

using Adam = OptimizerOf<AdamRule<false>>;
using AdamW = OptimizerOf<AdamRule<true>>;
extern template class OptimizerOf<AdamRule<false>>;
extern template class OptimizerOf<AdamRule<true>>;

}  // namespace weft::optim
