#include "optim/adam.h"

#include "optim/optimizer_of.h"

#include <array>
#include <cmath>

namespace weft::optim {

template <bool decoupled>
void AdamRule<decoupled>::check(const AdamOptions& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  WEFT_CHECK(options.lr >= 0, kName, "expected an lr of 0 or more, got ", options.lr);
  WEFT_CHECK(is_beta(options.beta1), kName, "expected a beta1 in [0, 1), got ", options.beta1);
  WEFT_CHECK(is_beta(options.beta2), kName, "expected a beta2 in [0, 1), got ", options.beta2);
  WEFT_CHECK(options.eps >= 0, kName, "expected an eps of 0 or more, got ", options.eps);
  WEFT_CHECK(options.weight_decay.value_or(0) >= 0, kName,
             "expected a weight_decay of 0 or more, got ", *options.weight_decay);
}

template <bool decoupled>
std::span<const std::string_view> AdamRule<decoupled>::state_names(const AdamOptions&) {
  static constexpr std::array<std::string_view, 2> kNames = {"average", "square_average"};
  return kNames;
}

template <bool decoupled>
AdamStep AdamRule<decoupled>::begin(const AdamOptions& options, int64_t steps) {
  const auto t = static_cast<double>(steps + 1);
  return {.lr = options.lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = options.weight_decay.value_or(decoupled ? 0.01 : 0.0),
          .decoupled = decoupled,
          .correction1 = 1 - std::pow(options.beta1, t),
          .correction2 = 1 - std::pow(options.beta2, t)};
}

template struct AdamRule<false>;
template struct AdamRule<true>;
template class OptimizerOf<AdamRule<false>>;
template class OptimizerOf<AdamRule<true>>;

}  // namespace weft::optim
