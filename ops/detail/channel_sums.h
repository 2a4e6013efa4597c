// Sums over the rows of a matrix whose columns are channels: the statistics of batch and group
// normalisation over NHWC images, and the sums of their gradients.
//
// Rows are cut into blocks whose size depends on the number of channels alone; a block is summed in
// f32 (f64 where the elements are) while it is in cache, runs of blocks are added up in f64 in
// their order, then the runs. Results depend on shapes and values only.
#pragma once

#include "ops/detail/channel_maps.h"

namespace weft::detail {

// Two sums for each (segment, channel): f64 tensors [segments, channels].
struct ChannelPair {
  Tensor first;
  Tensor second;
};

// x and g are matrices of one floating dtype; mean is [segments, channels] of their compute_dtype.

// first: the mean of each column of a segment; second: the sum of squared deviations from it (Chan,
// Golub & LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
// 1979).
ChannelPair channel_moments(const Tensor& x, const ChannelRows& shape);

// first: the sum of g; second: the sum of g * (x - mean). Where `dead`, if it is defined, has a
// bit, g counts as zero.
ChannelPair channel_gradient_sums(const Tensor& g, const Tensor& dead, const Tensor& x,
                                  const Tensor& mean, const ChannelRows& shape);

}  // namespace weft::detail
