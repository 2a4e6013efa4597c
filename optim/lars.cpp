#include "optim/lars.h"

#include "optim/optimizer_of.h"

#include <array>

namespace weft::optim {

void LarsRule::check(const LarsOptions& options) {
  WEFT_CHECK(options.lr >= 0, kName, "expected an lr of 0 or more, got ", options.lr);
  WEFT_CHECK(options.momentum >= 0, kName, "expected a momentum of 0 or more, got ",
             options.momentum);
  WEFT_CHECK(options.weight_decay >= 0, kName, "expected a weight_decay of 0 or more, got ",
             options.weight_decay);
  WEFT_CHECK(options.trust > 0, kName, "expected a trust above 0, got ", options.trust);
}

std::span<const std::string_view> LarsRule::state_names(const LarsOptions& options) {
  static constexpr std::array<std::string_view, 1> kNames = {"momentum"};
  return std::span(kNames).first(options.momentum != 0 ? 1 : 0);
}

LarsStep LarsRule::begin(const LarsOptions& options, int64_t) {
  return {.lr = options.lr,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .trust = options.trust};
}

bool LarsRule::adapts(const LarsOptions& options, int dims) {
  return dims >= 2 || options.adapt_vectors;
}

// Without a parameter or a gradient there is no scale to find: a plain step.
void LarsRule::adapt(LarsStep& step, double parameter_norm, double gradient_norm) {
  if (parameter_norm == 0 || gradient_norm == 0) return;
  step.ratio = step.trust * parameter_norm / (gradient_norm + step.weight_decay * parameter_norm);
}

template class OptimizerOf<LarsRule>;

}  // namespace weft::optim
