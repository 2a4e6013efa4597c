// The kernel of every reduction: out = a op b over a run of elements.
#pragma once

#include "core/dtype.h"
#include "dist/collective.h"

namespace weft::dist::detail {

// Elements of a block: its accumulators stay in the first-level cache.
inline constexpr int64_t kBlock = 512;

// out[i] = a[i] op b[i]; out may be a or b themselves. dtype is f32, f64, i64, i32 or u8; integers
// wrap, and a NaN on either side gives NaN. `mean` is added like `sum`.
void combine(std::byte* out, const std::byte* a, const std::byte* b, int64_t count, DType dtype,
             ReduceOp op);

// values[i] /= divisor, f32 or f64.
void divide(std::byte* values, int64_t count, DType dtype, int64_t divisor);

// out[i] = in[i]. One of the dtypes is `compute`, f32 or f64, the other any floating one; or they
// are the same. Rounds to nearest even.
void convert(std::byte* out, DType to, const std::byte* in, DType from, int64_t count);

}  // namespace weft::dist::detail
