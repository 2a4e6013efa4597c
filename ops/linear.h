// The linear layer's product.
#pragma once

#include "core/tensor.h"

namespace weft {

// x · weightᵀ + bias: x [..., in], weight [out, in], bias [out] or undefined; the result is [...,
// out]. One dtype for all.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace weft
