// Other looks at the same elements. Views share storage with x and are differentiable; none copies,
// but for reshape and flatten where no stride pattern fits.
#pragma once

#include "core/tensor.h"

#include <vector>

namespace weft {

// The same elements in row-major order under other sizes; one size may be -1 and is worked out.
Tensor reshape(const Tensor& x, const Shape& shape);
// Merges dims from..to (inclusive) into one.
Tensor flatten(const Tensor& x, int64_t from = 0, int64_t to = -1);

// Dims in another order: out dim i is x's dim dims[i].
Tensor permute(const Tensor& x, const Shape& dims);
Tensor transpose(const Tensor& x, int64_t a, int64_t b);

// Elements begin, begin + step, … before end along dim. Negative begin and end count from the end,
// both are clamped, as in Python; step is at least 1.
Tensor slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end = INT64_MAX,
             int64_t step = 1);
// One index of a dim, which vanishes. Negative counts from the end; outside is an error.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
// `length` elements from `start` on; outside is an error.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);

// Repeats dims of size 1 without copying, new dims in front; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
// Drops all dims of size 1, or this one if its size is 1.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
// A new dim of size 1 at `dim`.
Tensor unsqueeze(const Tensor& x, int64_t dim);

// Parts along dim: of the given sizes, which add up to it; of `size` each, the last one shorter; or
// at most `count` of equal size, the last one shorter. The gradient is put together in one pass, or
// in none where the parts' gradients lie side by side as the parts do.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t dim = 0);

}  // namespace weft
