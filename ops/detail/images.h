// Images as kernels see them: [N, H, W, C] without gaps, of the type they compute in.
#pragma once

#include "autograd/grad_mode.h"
#include "core/tensor.h"
#include "ops/copy.h"
#include "ops/detail/copies.h"

#include <algorithm>

namespace weft::detail {

// x stored NHWC and converted to `dtype`: x itself where it is that already. Carries no history.
inline Tensor images(const Tensor& x, DType dtype) {
  if (x.is_channels_last() && x.dtype() == dtype) return x;
  ++copy_counts().images;
  const NoGrad no_grad;
  return to(channels_last(x), dtype);
}

inline Tensor empty_images(const Shape& shape, DType dtype) {
  return empty_strided(shape, channels_last_strides(shape), {.dtype = dtype});
}

// Rows of `elements` each that are worth a thread of their own.
inline int64_t row_grain(int64_t elements) {
  return std::max<int64_t>(1, 8192 / std::max<int64_t>(elements, 1));
}

}  // namespace weft::detail
