// Sizes and strides: short lists of int64 held inline, so that making a tensor needs no extra
// allocation.
#pragma once

#include "core/error.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace weft {

inline constexpr int kMaxDims = 8;

// A list of at most kMaxDims integers. As sizes it counts elements a dim; as strides, elements
// between neighbours of a dim.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> values) : Shape(values.begin(), values.size()) {}
  explicit Shape(std::span<const int64_t> values) : Shape(values.data(), values.size()) {}
  // `dims` times `value`.
  static Shape filled(int dims, int64_t value) {
    Shape shape;
    shape.resize(dims, value);
    return shape;
  }

  int dims() const { return dims_; }
  bool empty() const { return dims_ == 0; }
  // Unchecked; dims below 0 count from the end, as in Tensor::size().
  int64_t operator[](int dim) const { return values_[dim < 0 ? dim + dims_ : dim]; }
  int64_t& operator[](int dim) { return values_[dim]; }
  int64_t back() const { return values_[dims_ - 1]; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + dims_; }
  int64_t* begin() { return values_; }
  int64_t* end() { return values_ + dims_; }

  void push_back(int64_t value) { resize(dims_ + 1, value); }
  void insert(int dim, int64_t value);
  void erase(int dim);
  void resize(int dims, int64_t fill) {
    WEFT_CHECK(dims >= 0 && dims <= kMaxDims, "shape", "expected at most 8 dims, got ", dims);
    for (int i = dims_; i < dims; ++i)
      values_[i] = fill;
    dims_ = dims;
  }

  bool operator==(const Shape& other) const {
    if (dims_ != other.dims_) return false;
    for (int i = 0; i < dims_; ++i) {
      if (values_[i] != other.values_[i]) return false;
    }
    return true;
  }

  // Product of all sizes (1 for a scalar). Sizes that came from a file or a user go through
  // checked_numel.
  int64_t numel() const {
    int64_t product = 1;
    for (int i = 0; i < dims_; ++i)
      product *= values_[i];
    return product;
  }

 private:
  Shape(const int64_t* values, size_t count) {
    WEFT_CHECK(count <= kMaxDims, "shape", "expected at most 8 dims, got ", count);
    dims_ = static_cast<int>(count);
    for (size_t i = 0; i < count; ++i)
      values_[i] = values[i];
  }

  int dims_ = 0;
  int64_t values_[kMaxDims];
};

using Strides = Shape;

// "[2, 3, 4]"
std::string to_string(const Shape& shape);

// numel, refusing negative sizes and products past int64 (with element size) with an error naming
// `op`.
int64_t checked_numel(const Shape& shape, int64_t element_size, const char* op);

// Row-major strides.
inline Strides contiguous_strides(const Shape& sizes) {
  Strides strides = sizes;
  int64_t step = 1;
  for (int i = sizes.dims() - 1; i >= 0; --i) {
    strides[i] = step;
    if (sizes[i] > 1) step *= sizes[i];
  }
  return strides;
}

// The dims in order of falling stride: how the elements lie in memory, outermost first. Equal
// strides keep their order. Only the first strides.dims() entries count.
std::array<int, kMaxDims> memory_order(const Strides& strides);

// Strides of logical NCHW stored as NHWC; expects 4 dims.
Strides channels_last_strides(const Shape& sizes);

// The shape both broadcast to (NumPy rules); throws naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

// Maps a dim in [-dims, dims) to [0, dims); throws naming `op`.
inline int wrap_dim(int64_t dim, int dims, const char* op) {
  const int64_t bound = dims > 0 ? dims : 1;
  WEFT_CHECK(dim >= -bound && dim < bound, op, "expected a dim in [", -bound, ", ", bound - 1,
             "], got ", dim);
  return static_cast<int>(dim < 0 ? dim + bound : dim);
}

}  // namespace weft
