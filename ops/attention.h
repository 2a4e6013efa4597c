// Scaled dot-product attention (Vaswani et al., "Attention is all you need", 2017, eq. 1).
#pragma once

#include "core/tensor.h"

namespace weft {

struct AttentionOptions {
  // Broadcasts to [..., queries, keys]. bool: true where a query may look; floating: added to the
  // scores.
  Tensor mask = {};
  // Query i looks at keys 0..i only. May be combined with a mask.
  bool causal = false;
  double scale = 0;    // of the scores; 0 for 1/√d
  double dropout = 0;  // of the weights; drawn from the random state
};

// softmax(q kᵀ · scale + mask) v: q [..., queries, d], k [..., keys, d], v [..., keys, dv]; leading
// dims broadcast. The result [..., queries, dv] of four dims [batch, heads, …] is stored batch,
// queries, heads, dv, so that merging heads copies nothing. A query that may look at no key gives
// zeros. Weights are computed a head at a time and computed again in backward: only a number a
// query is kept. 16-bit floats compute in f32.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace weft
