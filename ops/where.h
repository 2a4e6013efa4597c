// Choosing between values by a mask.
#pragma once

#include "core/tensor.h"

namespace weft {

// a where condition holds, b elsewhere. The condition is bool; all three broadcast, a and b
// promote.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);

// x with `value` where the bool mask, which broadcasts to x's shape, holds.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);

}  // namespace weft
