// Running sums.
#pragma once

#include "core/tensor.h"

namespace weft {

// out[i] = x[0] + … + x[i] along dim, added in that order. Integers and bool give i64; 16-bit
// floats accumulate in f32.
Tensor cumsum(const Tensor& x, int64_t dim);

}  // namespace weft
