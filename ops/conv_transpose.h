// Transposed 2-d convolution: the adjoint of conv2d with respect to its input, as an operator of
// its own.
#pragma once

#include "core/tensor.h"

namespace weft {

// Pairs are {height, width}.
struct ConvTranspose2dOptions {
  Shape stride = {1, 1};
  Shape padding = {0, 0};         // taken away on every side
  Shape output_padding = {0, 0};  // added at the lower right, less than stride or dilation
  Shape dilation = {1, 1};
  int64_t groups = 1;
};

// x [N, C, H, W] of any layout, weight [C, O / groups, kh, kw], bias [O] or undefined, all of one
// floating dtype → [N, O, OH, OW], channels-last, with
//   OH = (H - 1) * stride - 2 * padding + dilation * (kh - 1) + output_padding + 1
// and OW likewise. N may be 0.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});

}  // namespace weft
