// Reading and adding by index. Indices are i64 or i32 and must lie in [0, size); an index outside
// is an error that names the first one and where it stands.
#pragma once

#include "core/tensor.h"

namespace weft {

// out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on; the result has index's shape, whose
// other sizes must not exceed x's.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
// The slices of x along dim that a 1-d index names, in its order.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
// A copy of x with src added at the places gather would read; repeated places add up in src's
// logical order. 16-bit floats accumulate in f32.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

// Rows of weight [entries, width] for ids of any shape: [ids…, width].
Tensor embedding(const Tensor& weight, const Tensor& ids);
// i64 [ids…, classes]: 1 at the id, 0 elsewhere.
Tensor one_hot(const Tensor& ids, int64_t classes);

}  // namespace weft
