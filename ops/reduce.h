// Reductions over any dims.
//
// `dims` names the dims to reduce, negative ones counting from the end; empty means all of them. They vanish from
// the result, or stay with size 1 under `keepdim`. Inputs may have any strides. 16-bit floats accumulate in f32.
// How sums are ordered, and why their bits do not depend on strides or threads: ops/detail/reduce_loop.h.
#pragma once

#include "core/tensor.h"

namespace weft {

// Integers and bool sum to i64; floats keep their dtype.
Tensor sum(const Tensor& x, const Shape& dims = {}, bool keepdim = false);
// Sums the dims that broadcasting `shape` to x's shape would repeat: the adjoint of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace weft
