// Sums over the rows of a matrix whose columns are channels, and the elementwise passes that use
// them: the kernels of batch and group normalisation over NHWC images.
//
// Rows are cut into blocks whose size depends on the number of channels alone; a block is summed in
// T while it is in cache, the blocks' sums are added in f64 in their order. Results depend on
// shapes and values only.
#pragma once

#include "core/tensor.h"

namespace weft::detail {

// A dense matrix of segments * rows rows; every segment has statistics of its own.
struct ChannelRows {
  int64_t segments = 1;
  int64_t rows = 0;
  int64_t channels = 0;
};

// Two sums for each (segment, channel): f64 tensors [segments, channels].
struct ChannelPair {
  Tensor first;
  Tensor second;
};

// Below, x, g and out are matrices of a floating dtype; mean, scale, … are T[segments, channels].

// first: the mean of each column of a segment; second: the sum of squared deviations from it (Chan,
// Golub & LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
// 1979).
template <class T>
ChannelPair channel_moments(const Tensor& x, const ChannelRows& shape);

// first: the sum of g; second: the sum of g * (x - mean).
template <class T>
ChannelPair channel_gradient_sums(const Tensor& g, const Tensor& x, const Tensor& mean,
                                  const ChannelRows& shape);

// out = (x - mean) * scale + shift.
template <class T>
void channel_affine(const Tensor& out, const Tensor& x, const Tensor& mean, const Tensor& scale,
                    const Tensor& shift, const ChannelRows& shape);

// out = g * scale + ((x - mean) * slope + shift).
template <class T>
void channel_blend(const Tensor& out, const Tensor& g, const Tensor& x, const Tensor& mean,
                   const Tensor& scale, const Tensor& slope, const Tensor& shift,
                   const ChannelRows& shape);

}  // namespace weft::detail
