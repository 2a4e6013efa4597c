// Softmax and its logarithm along one dim.
#pragma once

#include "core/tensor.h"

namespace weft {

// exp(x) / Σ exp(x), shifted by the largest x so that large values are safe. Any strides; 16-bit
// floats compute in f32. A row of nothing but -inf gives NaN, as does one that holds +inf or NaN.
// The result is laid out like x.
Tensor softmax(const Tensor& x, int64_t dim);
// Its logarithm, computed as (x - max) - log Σ exp(x - max): nothing is lost where softmax would be
// 0, nor where all x are large.
Tensor log_softmax(const Tensor& x, int64_t dim);

}  // namespace weft
