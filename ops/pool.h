// Pooling of images [N, C, H, W]. Any layout is accepted; the result is channels-last. Floating
// dtypes; N may be 0, the other sizes may not.
#pragma once

#include "core/tensor.h"

namespace weft {

struct MaxPool2dOptions {
  Shape stride = {};       // {height, width}; empty: the kernel's
  Shape padding = {0, 0};  // at most half of the kernel's extent; never wins
  Shape dilation = {1, 1};
  bool ceil_mode = false;  // keep a last window that hangs over the edge
};

struct AvgPool2dOptions {
  Shape stride = {};
  Shape padding = {0, 0};
  bool ceil_mode = false;
  bool count_include_pad = true;  // zeros of the padding count in the mean
};

// The largest value of each window of `kernel` = {height, width}; NaN wins over everything, the
// first of equal values takes the gradient. Sizes along each axis, with floor or, in ceil_mode,
// ceil:
//   out = (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
Tensor max_pool2d(const Tensor& x, const Shape& kernel, const MaxPool2dOptions& options = {});

// The mean of each window.
Tensor avg_pool2d(const Tensor& x, const Shape& kernel, const AvgPool2dOptions& options = {});

// `size` = {height, width} windows, as even as whole positions allow: window i of n over `in`
// positions covers [floor(i * in / n), ceil((i + 1) * in / n)).
Tensor adaptive_avg_pool2d(const Tensor& x, const Shape& size);
Tensor adaptive_max_pool2d(const Tensor& x, const Shape& size);

}  // namespace weft
