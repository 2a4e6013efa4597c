// Putting tensors together, and growing them at their edges.
#pragma once

#include "core/tensor.h"

#include <span>

namespace weft {

// Tensors side by side along `dim`; their other sizes must agree, their dtypes promote. At least
// one tensor.
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
// Tensors of one shape along a new dim.
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);

// x with `value` around it. `widths` holds two numbers for each padded dim, before and after, the
// last dim first: {left, right, top, bottom} pads the last two. Negative widths cut away instead.
Tensor pad(const Tensor& x, std::span<const int64_t> widths, Scalar value = 0.0);
inline Tensor pad(const Tensor& x, std::initializer_list<int64_t> widths, Scalar value = 0.0) {
  return pad(x, std::span<const int64_t>(widths.begin(), widths.size()), value);
}

}  // namespace weft
