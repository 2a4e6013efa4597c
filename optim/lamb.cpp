#include "optim/lamb.h"

#include "optim/optimizer_of.h"

#include <array>
#include <cmath>

namespace weft::optim {

void LambRule::check(const LambOptions& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  WEFT_CHECK(options.lr >= 0, kName, "expected an lr of 0 or more, got ", options.lr);
  WEFT_CHECK(is_beta(options.beta1), kName, "expected a beta1 in [0, 1), got ", options.beta1);
  WEFT_CHECK(is_beta(options.beta2), kName, "expected a beta2 in [0, 1), got ", options.beta2);
  WEFT_CHECK(options.eps >= 0, kName, "expected an eps of 0 or more, got ", options.eps);
  WEFT_CHECK(options.weight_decay >= 0, kName, "expected a weight_decay of 0 or more, got ",
             options.weight_decay);
}

std::span<const std::string_view> LambRule::state_names(const LambOptions&) {
  static constexpr std::array<std::string_view, 2> kNames = {"average", "square_average"};
  return kNames;
}

LambStep LambRule::begin(const LambOptions& options, int64_t steps) {
  const auto t = static_cast<double>(steps + 1);
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .correction1 = 1 - std::pow(options.beta1, t),
          .correction2 = 1 - std::pow(options.beta2, t)};
}

bool LambRule::adapts(const LambOptions& options, int dims) {
  return dims >= 2 || options.adapt_vectors;
}

// Without a parameter or a direction there is no scale to find: a plain step.
void LambRule::adapt(LambStep& step, double parameter_norm, double direction_norm) {
  if (parameter_norm != 0 && direction_norm != 0) step.ratio = parameter_norm / direction_norm;
}

template class OptimizerOf<LambRule>;

}  // namespace weft::optim
