// The geometry of a 2-d convolution, and how each of its computations walks along one axis.
#pragma once

#include "core/tensor.h"

#include <algorithm>
#include <array>
#include <vector>

namespace weft::detail {

// y[N, O, OH, OW] = conv(x[N, C, H, W], weight[O, C / groups, kernel]). Pairs are {height, width}.
struct ConvShape {
  int64_t images = 0;
  int64_t channels = 0;          // C
  std::array<int64_t, 2> in{};   // H, W
  int64_t outputs = 0;           // O
  std::array<int64_t, 2> out{};  // OH, OW
  std::array<int64_t, 2> kernel{};
  std::array<int64_t, 2> stride{};
  std::array<int64_t, 2> padding{};
  std::array<int64_t, 2> dilation{};
  int64_t groups = 1;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_outputs() const { return outputs / groups; }
  // Every channel is its own group with one output.
  bool depthwise() const { return groups > 1 && groups == channels && groups == outputs; }
  Shape in_shape() const { return {images, channels, in[0], in[1]}; }
  Shape out_shape() const { return {images, outputs, out[0], out[1]}; }
  Shape weight_shape() const { return {outputs, group_channels(), kernel[0], kernel[1]}; }
};

// One axis of a correlation: target position out_start + t * out_step is the sum over taps k of
// weight weights[k] times source position in_start + t * in_step + offsets[k], for t in [0,
// outputs). Positions outside the source count as zero.
struct ConvAxis {
  int64_t outputs = 0;
  int64_t out_start = 0;
  int64_t out_step = 1;
  int64_t in_start = 0;
  int64_t in_step = 1;
  std::vector<int64_t> offsets = {};  // ascending from 0
  std::vector<int64_t> weights = {};

  int64_t taps() const { return static_cast<int64_t>(offsets.size()); }
  int64_t span() const { return offsets.empty() ? 0 : offsets.back(); }
  // Source positions from the first window's start to the last window's end.
  int64_t extent() const { return (outputs - 1) * in_step + span() + 1; }
  // Neighbouring taps read neighbouring positions.
  bool dense() const { return span() == taps() - 1; }
  bool stays_inside(int64_t size) const { return in_start >= 0 && in_start + extent() <= size; }
};

// The forward computation along axis 0 (rows) or 1 (columns).
ConvAxis forward_axis(const ConvShape& shape, size_t axis);

// The gradient with respect to x: with stride s, x positions fall into s phases (t mod s), each of
// which is a correlation of the gradient with every s-th tap in reverse order.
std::vector<ConvAxis> backward_axes(const ConvShape& shape, size_t axis);

}  // namespace weft::detail
