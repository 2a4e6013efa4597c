// The elementwise passes of batch and group normalisation over a matrix whose columns are channels
// (NHWC images): each reads its operands and writes its results once, ReLU and addition included.
//
// They walk backwards: the sums they use were taken forwards, which left the end of the operands in
// cache. Results that are larger than caches go past them. Neither changes a bit.
#pragma once

#include "core/tensor.h"

#include <algorithm>

namespace weft::detail {

// A dense matrix of segments * rows rows; every segment has statistics of its own.
struct ChannelRows {
  int64_t segments = 1;
  int64_t rows = 0;
  int64_t channels = 0;
};

// Rows are worked on in blocks that stay in cache between two passes over them.
inline int64_t channel_block_rows(const ChannelRows& shape) {
  constexpr int64_t kElements = 8192;
  return std::clamp<int64_t>(kElements / shape.channels, 32, 1024);
}

// Below, matrices are of one floating dtype; mean, scale, slope and shift are [segments, channels]
// of its compute_dtype. `dead` holds a bit for each element, set where ReLU let nothing through;
// undefined, it stands for none.

// Uninitialised bits for a matrix of `dtype`: u8.
Tensor channel_bits(DType dtype, const ChannelRows& shape);

// out = (x - mean) * scale + shift [+ residual] [through relu, which writes `dead` if it is
// defined]. `residual` may be undefined.
struct Affine {
  Tensor mean, scale, shift, residual;
  bool relu = false;
};
void channel_affine(const Tensor& out, const Tensor& dead, const Tensor& x, const Affine& affine,
                    const ChannelRows& shape);

// With h = g where not dead, else 0: out = h * scale + ((x - mean) * slope + shift), and
// dresidual = h if it is defined.
struct Blend {
  Tensor mean, scale, slope, shift;
};
void channel_blend(const Tensor& out, const Tensor& dresidual, const Tensor& g, const Tensor& dead,
                   const Tensor& x, const Blend& blend, const ChannelRows& shape);

// out = h [* scale], the same h; scale may be undefined.
void channel_gate(const Tensor& out, const Tensor& g, const Tensor& dead, const Tensor& scale,
                  const ChannelRows& shape);

}  // namespace weft::detail
