#include "optim/sgd.h"

#include "optim/optimizer_of.h"

#include <array>

namespace weft::optim {

void SgdRule::check(const SgdOptions& options) {
  WEFT_CHECK(options.lr >= 0, kName, "expected an lr of 0 or more, got ", options.lr);
  WEFT_CHECK(options.momentum >= 0, kName, "expected a momentum of 0 or more, got ",
             options.momentum);
  WEFT_CHECK(options.weight_decay >= 0, kName, "expected a weight_decay of 0 or more, got ",
             options.weight_decay);
  WEFT_CHECK(options.dampening == options.dampening, kName, "expected a dampening, got NaN");
  WEFT_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), kName,
             "expected a momentum and no dampening with nesterov, got momentum ", options.momentum,
             " and dampening ", options.dampening);
}

std::span<const std::string_view> SgdRule::state_names(const SgdOptions& options) {
  static constexpr std::array<std::string_view, 1> kNames = {"momentum"};
  return std::span(kNames).first(options.momentum != 0 ? 1 : 0);
}

SgdStep SgdRule::begin(const SgdOptions& options, int64_t steps) {
  return {.lr = options.lr,
          .momentum = options.momentum,
          .dampening = options.dampening,
          .weight_decay = options.weight_decay,
          .nesterov = options.nesterov,
          .first = steps == 0};
}

template class OptimizerOf<SgdRule>;

}  // namespace weft::optim
