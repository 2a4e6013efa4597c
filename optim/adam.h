// Adam, and AdamW with its decoupled weight decay: optim/update.h has formulas and sources.
#pragma once

#include "optim/optimizer.h"
#include "optim/update.h"

namespace weft::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  // taken from the parameter: p *= 1 - lr * weight_decay
};

// What both share. `decoupled` is AdamW.
struct AdamCore {
  using Step = AdamStep;

  static void check(const char* name, const AdamWOptions& options);
  // "average" and "square_average".
  static std::span<const std::string_view> state_names();
  static AdamStep begin(const AdamWOptions& options, bool decoupled, int64_t steps);
  template <class T>
  static void update(const AdamStep& step, T* p, const T* g, void* const* state, int64_t count) {
    adam_update(step, p, g, static_cast<T*>(state[0]), static_cast<T*>(state[1]), count);
  }
};

struct AdamWRule : AdamCore {
  using Options = AdamWOptions;
  static constexpr const char* kName = "adamw";
  static void check(const Options& options) { AdamCore::check(kName, options); }
  static std::span<const std::string_view> state_names(const Options&) { return AdamCore::state_names(); }
  static AdamStep begin(const Options& options, int64_t steps) {
    return AdamCore::begin(options, true, steps);
  }
};

struct AdamRule : AdamCore {
  using Options = AdamOptions;
  static constexpr const char* kName = "adam";
  static AdamWOptions common(const Options& o) { return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay}; }
  static void check(const Options& options) { AdamCore::check(kName, common(options)); }
  static std::span<const std::string_view> state_names(const Options&) { return AdamCore::state_names(); }
  static AdamStep begin(const Options& options, int64_t steps) {
    return AdamCore::begin(common(options), false, steps);
  }
};

using Adam = OptimizerOf<AdamRule>;
using AdamW = OptimizerOf<AdamWRule>;

}  // namespace weft::optim
