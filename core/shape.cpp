#include "core/shape.h"

#include <algorithm>

namespace weft {

void Shape::insert(int dim, int64_t value) {
  resize(dims_ + 1, value);
  std::copy_backward(values_ + dim, values_ + dims_ - 1, values_ + dims_);
  values_[dim] = value;
}

void Shape::erase(int dim) {
  std::copy(values_ + dim + 1, values_ + dims_, values_ + dim);
  --dims_;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.dims(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

int64_t checked_numel(const Shape& shape, int64_t element_size, const char* op) {
  int64_t numel = 1;
  bool overflow = false;
  bool zero = false;
  for (const int64_t size : shape) {
    WEFT_CHECK(size >= 0, op, "expected sizes of 0 or more, got ", shape);
    zero = zero || size == 0;
    overflow = overflow || __builtin_mul_overflow(numel, std::max<int64_t>(size, 1), &numel);
  }
  int64_t bytes = 0;
  overflow = overflow || __builtin_mul_overflow(numel, element_size, &bytes);
  WEFT_CHECK(!overflow, op, "expected a size that fits in 63 bits of bytes, got shape ", shape);
  return zero ? 0 : numel;
}

std::array<int, kMaxDims> memory_order(const Strides& strides) {
  std::array<int, kMaxDims> order{};
  for (int i = 0; i < strides.dims(); ++i) {  // insertion sort: at most eight entries
    int at = i;
    for (; at > 0 && strides[order[static_cast<size_t>(at - 1)]] < strides[i]; --at) {
      order[static_cast<size_t>(at)] = order[static_cast<size_t>(at - 1)];
    }
    order[static_cast<size_t>(at)] = i;
  }
  return order;
}

Strides channels_last_strides(const Shape& sizes) {
  WEFT_CHECK(sizes.dims() == 4, "channels_last", "expected 4 dims (NCHW), got shape ", sizes);
  const int64_t channels = std::max<int64_t>(sizes[1], 1);
  const int64_t width = std::max<int64_t>(sizes[3], 1);
  const int64_t height = std::max<int64_t>(sizes[2], 1);
  return {height * width * channels, 1, width * channels, channels};
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  if (a == b) return a;
  Shape out = Shape::filled(std::max(a.dims(), b.dims()), 1);
  for (int i = 1; i <= out.dims(); ++i) {
    const int64_t left = i <= a.dims() ? a[a.dims() - i] : 1;
    const int64_t right = i <= b.dims() ? b[b.dims() - i] : 1;
    WEFT_CHECK(left == right || left == 1 || right == 1, op, "expected shapes that broadcast, got ",
               a, " and ", b);
    out[out.dims() - i] = left == 1 ? right : left;
  }
  return out;
}

}  // namespace weft
