// The one loop behind everything elementwise. Kernels see contiguous blocks of one compute type;
// broadcasting, strides and dtypes are dealt with here, in how a block is loaded and stored.
#pragma once

#include "core/tensor.h"

#include <span>

namespace weft::detail {

inline constexpr int64_t kBlock =
    512;  // elements; a few operands' blocks fit the first-level cache
inline constexpr int kMaxInputs = 4;

// out[i] = f(in[0][i], in[1][i], …) for i in [0, count); count is a multiple of kPacket. Inputs and
// output are of the compute type, and the output may be one of the inputs.
using BlockKernel = void (*)(int64_t count, const void* const* in, void* out, const void* functor);

// Elements to which a kernel's count is rounded: short tails run through padded packets, so that an
// element's bits do not depend on where in the tensor it lies.
inline constexpr int64_t kPacket = 16;

// Runs `kernel` over all elements of `out`. Inputs broadcast to out's shape (checked by the caller)
// and are converted to `compute`, which is f32, f64 or i64; results are converted to out's dtype.
// `out` may be one of the inputs (in place), but must not overlap them otherwise.
void run_loop(const Tensor& out, std::span<const Tensor* const> inputs, DType compute,
              BlockKernel kernel, const void* functor);

// An output for an elementwise operator on `inputs`, whose broadcast shape is `shape`: laid out
// like the first input that has this shape and is dense.
Tensor elementwise_output(const Shape& shape, DType dtype, std::span<const Tensor* const> inputs);

}  // namespace weft::detail
