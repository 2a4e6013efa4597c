// The one loop behind every reduction: sums, products, extremes, moments, norms.
//
// The order in which values are combined is part of the result's definition. The n values that go
// into one output are taken in row-major order of the reduced dims (in memory order where x is
// dense but permuted, as channels-last images are), and
//   - value r belongs to lane r % 16;
//   - a block of 128 values folds each lane in sequence;
//   - blocks fold lane by lane in a binary tree (the left subtree is the largest power of two),
//   first the 32
//     blocks of a piece, then the pieces;
//   - the lanes fold last: 0+8, 1+9 … 7+15, then 0+4 … 3+7, then 0+2, 1+3, then 0+1.
// So bits depend on shape and dims alone: not on strides, addresses, threads, the width of the
// processor's registers, or which of the two walks below ran. Errors grow like log n (Higham, "The
// accuracy of floating point summation", 1993, §3), as in NumPy.
#pragma once

#include "core/tensor.h"

namespace weft::detail {

inline constexpr int64_t kReduceLanes = 16;
inline constexpr int64_t kReduceBlock = 128;
inline constexpr int64_t kReducePiece = 32 * kReduceBlock;
// Neighbouring outputs that are reduced together when they lie side by side.
template <class T>
inline constexpr int64_t kReduceColumns = 512 / static_cast<int64_t>(sizeof(T));

// A way to reduce, for one compute type; made by reducer_of in ops/detail/reducers.h.
struct Reducer {
  // lanes[0..16) of in[0..count), count <= kReducePiece. `center` points at the output's centre.
  void (*row)(const void* in, int64_t count, const void* center, void* lanes, const void* functor);
  // The same for `width` outputs at once from count <= kReduceBlock rows: lane l of output c at
  // lanes[l * kReduceColumns + c]. `centers` holds kReduceColumns values.
  void (*columns)(const void* const* rows, int64_t count, int64_t width, const void* centers,
                  void* lanes, const void* functor);
  // into[i] = combine(into[i], from[i])
  void (*combine)(void* into, const void* from, int64_t count);
  // Folds sixteen neighbouring lanes into the first.
  void (*fold)(void* lanes);
  const void* functor;
};

// A set of dims: bit d stands for dim d.
using DimSet = uint32_t;
inline bool has_dim(DimSet set, int dim) {
  return (set >> dim & 1u) != 0;
}
// `dims` (negative ones count from the end, none means all) of x, checked.
DimSet dim_set(const char* op, const Tensor& x, const Shape& dims);
// How many values go into one output.
int64_t reduced_count(const Tensor& x, DimSet dims);

// Reduces x over `dims`, which keep size 1, computing in `compute` (f32, f64 or i64). `centers`, if
// defined, holds a value of the compute type for every output and is itself a result of
// run_reduction on x over dims.
Tensor run_reduction(const Tensor& x, DimSet dims, DType compute, DType result,
                     const Reducer& reducer, const Tensor& centers = {});

// A view without the dims in `dims`, which have size 1; or x itself when they are to be kept.
Tensor drop_dims(const Tensor& x, DimSet dims, bool keepdim);
// The inverse: a view of g, whose shape is x's without `dims` (or with them as 1), that broadcasts
// to x's.
Tensor restore_dims(const Tensor& g, const Shape& x, DimSet dims);
// A view of g (with or without `dims`) that repeats it to x's shape.
Tensor repeat_dims(const Tensor& g, const Shape& x, DimSet dims);

}  // namespace weft::detail
