// 2-d convolution (as in deep learning: correlation) of images.
#pragma once

#include "core/tensor.h"

namespace weft {

// Pairs are {height, width}.
struct Conv2dOptions {
  Shape stride = {1, 1};
  Shape padding = {0, 0};   // zeros on every side
  Shape dilation = {1, 1};  // distance of neighbouring taps
  int64_t groups = 1;       // channels and outputs fall into that many independent runs
};

// x [N, C, H, W] of any layout, weight [O, C / groups, kh, kw], bias [O] or undefined, all of one
// floating dtype → [N, O, OH, OW], channels-last, with
//   OH = (H + 2 * padding - dilation * (kh - 1) - 1) / stride + 1
// and OW likewise. N may be 0. 16-bit floats accumulate in f32. The weight's gradient has the
// weight's own strides.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

}  // namespace weft
