#include "ops/detail/conv_shape.h"

#include <algorithm>

namespace weft::detail {

ConvAxis forward_axis(const ConvShape& shape, size_t axis) {
  ConvAxis result{
      .outputs = shape.out[axis], .in_start = -shape.padding[axis], .in_step = shape.stride[axis]};
  for (int64_t k = 0; k < shape.kernel[axis]; ++k) {
    result.offsets.push_back(k * shape.dilation[axis]);
    result.weights.push_back(k);
  }
  return result;
}

std::vector<ConvAxis> backward_axes(const ConvShape& shape, size_t axis) {
  const int64_t size = shape.in[axis];
  const int64_t stride = shape.stride[axis];
  std::vector<ConvAxis> phases;
  for (int64_t phase = 0; phase < std::min(stride, size); ++phase) {
    ConvAxis result{
        .outputs = (size - phase + stride - 1) / stride, .out_start = phase, .out_step = stride};
    // Tap k of output o reads x at o * stride - padding + k * dilation; solved for o at x = phase +
    // t * stride.
    for (int64_t k = shape.kernel[axis] - 1; k >= 0; --k) {
      const int64_t distance = phase + shape.padding[axis] - k * shape.dilation[axis];
      if (distance % stride != 0) continue;
      result.offsets.push_back(distance / stride);
      result.weights.push_back(k);
    }
    if (!result.offsets.empty()) result.in_start = result.offsets.front();
    for (int64_t& offset : result.offsets)
      offset -= result.in_start;
    phases.push_back(std::move(result));
  }
  return phases;
}

}  // namespace weft::detail
