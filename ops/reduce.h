// Reductions over any dims.
//
// `dims` names the dims to reduce, negative ones counting from the end; empty means all of them.
// They vanish from the result, or stay with size 1 under `keepdim`. Inputs may have any strides.
// 16-bit floats accumulate in f32. How sums are ordered, and why their bits do not depend on
// strides or threads: ops/detail/reduce_loop.h.
#pragma once

#include "core/tensor.h"

namespace weft {

// Integers and bool sum (multiply) to i64; floats keep their dtype. Over nothing: 0 (1).
Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
// Sums the dims that broadcasting `shape` to x's shape would repeat: the adjoint of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

// Floating dtypes only, here and below; NaN over nothing.
Tensor mean(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
// sum (x - mean)² / (n - correction), in two passes; NaN where n <= correction, as far as it is
// 0/0.
Tensor var(const Tensor& x, const Shape& dims = {}, int64_t correction = 1, bool keepdim = false);
// √var; its gradient is 0 where it is 0.
Tensor stddev(const Tensor& x, const Shape& dims = {}, int64_t correction = 1,
              bool keepdim = false);
// (sum |x|^p)^(1/p); p = 0 counts what is not 0, p = ±inf is the largest or smallest |x|. Where the
// norm is 0, so is the gradient; p = ±inf share it evenly among ties.
Tensor norm(const Tensor& x, double p = 2);
Tensor norm(const Tensor& x, double p, const Shape& dims, bool keepdim = false);
// log sum exp(x), shifted by the largest x so that it neither overflows nor vanishes.
Tensor logsumexp(const Tensor& x, const Shape& dims = {}, bool keepdim = false);

// The largest and smallest values, any dtype; NaN wins. Expects at least one value for each result.
// The gradient is shared evenly among ties.
Tensor amax(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

struct ValuesIndices {
  Tensor values;
  Tensor indices;  // i64
};
// Along one dim, with the index of the first that is largest (smallest): to it goes the gradient.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
// Those indices alone, i64; over all elements, the index in row-major order.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);

}  // namespace weft
