// Widening loads and narrowing stores: how kernels that compute in f32, f64 or i64 read and write
// every dtype.
#pragma once

#include "core/dtype.h"

#include <cstddef>
#include <cstdint>

namespace weft::detail {

// Reads `count` elements of `dtype`, `stride` elements apart (0 repeats the first), into
// out[0..count). T is float, double or int64_t.
template <class T>
void load_run(T* out, const std::byte* from, DType dtype, int64_t stride, int64_t count);

// Writes in[0..count) as `dtype`, `stride` elements apart. Floats round to nearest even; a float
// written as an integer is truncated; as bool, it is "not zero".
template <class T>
void store_run(std::byte* to, DType dtype, int64_t stride, const T* in, int64_t count);

}  // namespace weft::detail
