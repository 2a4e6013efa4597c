// Copies: between layouts, dtypes and tensors.
#pragma once

#include "core/tensor.h"

namespace weft {

// A tensor of its own memory with the same values and the same layout where that is dense.
Tensor clone(const Tensor& x);
// x itself if it is row-major; else a row-major copy.
Tensor contiguous(const Tensor& x);
// x itself if it is stored NHWC; else such a copy. Expects logical NCHW.
Tensor channels_last(const Tensor& x);
// x itself if it has this dtype; else a converted copy of the same layout.
Tensor to(const Tensor& x, DType dtype);
// Writes src, broadcast and converted, into target. While recording, the gradient flows to src.
Tensor copy_(const Tensor& target, const Tensor& src);

}  // namespace weft
