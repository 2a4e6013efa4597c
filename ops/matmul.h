// Matrix products.
#pragma once

#include "core/tensor.h"

namespace weft {

// a [..., m, k] · b [..., k, n] = [..., m, n], with the dims before the last two broadcast. A 1-d a
// is a row, a 1-d b a column; the dim added for it vanishes from the result. Dtypes promote; 16-bit
// floats accumulate in f32 and round once at the end; integers wrap around. Transposed and strided
// operands are read where they lie. k = 0 gives zeros.
//
// In f32 and f64 the bits of a result depend on its row of a, its column of b and k alone: not on
// the number of rows, the layout or the threads (ops/detail/gemm.h).
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace weft
