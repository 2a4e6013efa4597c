// Matrix products.
#pragma once

#include "core/tensor.h"

namespace weft {

// a · b over the last two dims, with the dims before them broadcast. A 1-d a is a row, a 1-d b a column; the dim added
// for it vanishes from the result. Dtypes promote; 16-bit floats accumulate in f32 and round once at the end. Transposed and strided
// operands are read where they lie.
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace weft
