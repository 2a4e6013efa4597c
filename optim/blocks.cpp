#include "optim/blocks.h"

#include <algorithm>

namespace weft::optim {

std::ptrdiff_t Blocks::run_of(int64_t block) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), block,
                                      [](int64_t at, const Run& run) { return at < run.first; });
  return after - runs_.begin() - 1;
}

}  // namespace weft::optim
