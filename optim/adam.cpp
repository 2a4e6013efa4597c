#include "optim/adam.h"

#include <array>
#include <cmath>

namespace weft::optim {

void AdamCore::check(const char* name, const AdamWOptions& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  WEFT_CHECK(options.lr >= 0, name, "expected an lr of 0 or more, got ", options.lr);
  WEFT_CHECK(is_beta(options.beta1), name, "expected a beta1 in [0, 1), got ", options.beta1);
  WEFT_CHECK(is_beta(options.beta2), name, "expected a beta2 in [0, 1), got ", options.beta2);
  WEFT_CHECK(options.eps >= 0, name, "expected an eps of 0 or more, got ", options.eps);
  WEFT_CHECK(options.weight_decay >= 0, name, "expected a weight_decay of 0 or more, got ",
             options.weight_decay);
}

std::span<const std::string_view> AdamCore::state_names() {
  static constexpr std::array<std::string_view, 2> kNames = {"average", "square_average"};
  return kNames;
}

AdamStep AdamCore::begin(const AdamWOptions& options, bool decoupled, int64_t steps) {
  const auto t = static_cast<double>(steps + 1);
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay,
          .decoupled = decoupled,
          .correction1 = 1 - std::pow(options.beta1, t),
          .correction2 = 1 - std::pow(options.beta2, t)};
}

}  // namespace weft::optim
