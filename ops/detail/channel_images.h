// Inputs of batch and group normalisation as matrices of channels: NHWC memory, whatever their
// dims.
#pragma once

#include "autograd/record.h"
#include "ops/detail/channel_maps.h"
#include "ops/detail/copies.h"
#include "ops/detail/norm_parameters.h"

#include <algorithm>

namespace weft::detail {

inline void check_channels(const char* op, const Tensor& x) {
  WEFT_CHECK(x.dims() >= 2 && x.dims() <= 5 && x.size(1) > 0, op,
             "expected an input [N, C] or [N, C, …] of at most 5 dims with at least one channel, "
             "got shape ",
             x.shape());
}

// x as NHWC memory [N, C, 1, positions]; images stay as they are where they are channels-last.
inline Tensor channel_images(const Tensor& x) {
  const NoGrad no_grad;
  if (x.dims() == 4) {
    if (!x.is_channels_last()) ++copy_counts().images;
    return channels_last(x);
  }
  const Tensor rows = contiguous(x);
  const int64_t channels = x.size(1);
  const int64_t positions =
      channels > 0 ? x.numel() / std::max<int64_t>(1, x.size(0) * channels) : 0;
  const Shape shape{x.size(0), channels, 1, positions};
  return channels_last(alias(rows, shape, contiguous_strides(shape)));
}

// The way back: `images`, laid out as channel_images gives them, in an input's shape.
inline Tensor from_channel_images(const Tensor& images, const Shape& shape) {
  if (shape.dims() == 4) return images;
  Strides strides = contiguous_strides(shape);
  const int64_t channels = std::max<int64_t>(shape[1], 1);
  for (int d = 2; d < shape.dims(); ++d)
    strides[d] *= channels;
  strides[1] = 1;
  return alias(images, shape, strides);
}

// Parameters of the elementwise passes over segments * channels, made from what was computed in
// double.
inline Tensor channel_values(const std::vector<double>& values, const ChannelRows& shape,
                             DType compute) {
  return to(from_values(values, {shape.segments, shape.channels}), compute);
}

// (x - mean) * rstd * weight + bias, per segment and channel; rstd is [segments * channels].
inline Affine channel_norm(const Tensor& mean, const std::vector<double>& rstd,
                           const Tensor& weight, const Tensor& bias, const ChannelRows& shape) {
  const std::vector<double> weights = parameter_values(weight, shape.channels, 1);
  const std::vector<double> biases = parameter_values(bias, shape.channels, 0);
  std::vector<double> scale(rstd.size());
  std::vector<double> shift(rstd.size());
  for (size_t i = 0; i < scale.size(); ++i) {
    const size_t c = i % weights.size();
    scale[i] = rstd[i] * weights[c];
    shift[i] = biases[c];
  }
  const DType compute = mean.dtype();
  return {.mean = mean,
          .scale = channel_values(scale, shape, compute),
          .shift = channel_values(shift, shape, compute),
          .residual = {}};
}

// The zero gradient of a parameter that no element met.
inline Tensor no_parameter_gradient(const Tensor& parameter) {
  return parameter_gradient(std::vector<double>(static_cast<size_t>(parameter.numel())), parameter);
}

}  // namespace weft::detail
