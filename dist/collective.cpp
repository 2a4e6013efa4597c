#include "dist/collective.h"

#include <array>

namespace weft::dist {

const char* name_of(Collective collective) {
  static constexpr std::array<const char*, kCollectives> names = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",  "gather",
      "scatter",    "all_to_all",     "send",       "recv",      "barrier", "split"};
  return names[static_cast<size_t>(collective)];
}

const char* name_of(ReduceOp op) {
  static constexpr std::array<const char*, 5> names = {"sum", "mean", "max", "min", "product"};
  return names[static_cast<size_t>(op)];
}

Elements::Elements(const Tensor& tensor)
    : data(tensor.raw()), count(tensor.numel()), dtype(tensor.dtype()) {
  WEFT_CHECK(tensor.is_dense(), "collective",
             "expected a tensor without gaps in memory, got strides ", tensor.strides(),
             " for shape ", tensor.shape());
}

}  // namespace weft::dist
