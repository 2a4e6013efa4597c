// A strided index space, walked in runs along its innermost dim: how kernels that are not
// elementwise find their elements under any strides.
#pragma once

#include "core/shape.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace weft::detail {

// Dims from outermost to innermost, with strides in elements. Neighbours that lie end to end are
// merged, dims of size 1 left out.
class Runs {
 public:
  // Adds a dim inside those there are.
  void push(int64_t size, int64_t stride) {
    if (size == 1) return;
    numel_ *= size;
    if (dims_ > 0 && strides_[dims_ - 1] == size * stride) {
      sizes_[dims_ - 1] *= size;
      strides_[dims_ - 1] = stride;
      return;
    }
    sizes_[dims_] = size;
    strides_[dims_++] = stride;
  }
  // Takes the innermost dim off (nothing when there is none).
  void pop() {
    if (dims_ == 0) return;
    --dims_;
    numel_ = 1;
    for (size_t d = 0; d < dims_; ++d)
      numel_ *= sizes_[d];
  }

  int64_t numel() const { return numel_; }
  int64_t inner_size() const { return dims_ > 0 ? sizes_[dims_ - 1] : 1; }
  int64_t inner_stride() const { return dims_ > 0 ? strides_[dims_ - 1] : 1; }

  // Where element `index` (row-major in this space) lies.
  int64_t offset(int64_t index) const {
    int64_t offset = 0;
    for (size_t d = dims_; d-- > 1;) {
      offset += index % sizes_[d] * strides_[d];
      index /= sizes_[d];
    }
    return dims_ > 0 ? offset + index * strides_[0] : 0;
  }

  // Calls f(offset, done, length) for each run of elements [begin, begin + count): `length`
  // elements from `offset`, inner_stride() apart, of which the first is number begin + done.
  template <class F>
  void visit(int64_t begin, int64_t count, const F& f) const {
    if (count <= 0) return;
    if (dims_ <= 1) return f(begin * inner_stride(), int64_t{0}, count);
    std::array<int64_t, kMaxDims> index{};
    int64_t offset = 0;
    for (size_t d = dims_; d-- > 0;) {
      index[d] = begin % sizes_[d];
      begin /= sizes_[d];
      offset += index[d] * strides_[d];
    }
    const size_t last = dims_ - 1;
    for (int64_t done = 0; done < count;) {
      const int64_t length = std::min(sizes_[last] - index[last], count - done);
      f(offset, done, length);
      done += length;
      index[last] += length;
      offset += length * strides_[last];
      for (size_t d = last; d > 0 && index[d] == sizes_[d]; --d) {
        offset += strides_[d - 1] - index[d] * strides_[d];
        index[d] = 0;
        ++index[d - 1];
      }
    }
  }

 private:
  size_t dims_ = 0;
  int64_t numel_ = 1;
  std::array<int64_t, kMaxDims> sizes_{};
  std::array<int64_t, kMaxDims> strides_{};
};

}  // namespace weft::detail
