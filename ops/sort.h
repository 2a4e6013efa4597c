// Order along a dim. NaN counts as the largest value, as in NumPy and PyTorch; equal values keep
// their order.
#pragma once

#include "core/tensor.h"
#include "ops/reduce.h"

namespace weft {

// Sorted values and where they stood.
ValuesIndices sort(const Tensor& x, int64_t dim = -1, bool descending = false);
// Where they stood: i64.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);
// The k largest (or smallest), in order, and where they stood.
ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);

}  // namespace weft
