// For operators that write every element of a tensor from nothing: by a function of the element's
// logical index.
#pragma once

#include "autograd/record.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/detail/convert.h"

#include <algorithm>
#include <array>

namespace weft::detail {

// An operator that overwrites `target` in place: checks it, and in done() ends its history.
class Overwrite {
 public:
  Overwrite(const char* op, const Tensor& target) : op_(op), target_(target) {
    WEFT_CHECK(target.defined(), op, "expected a tensor, got an undefined one");
    recording_ = recording(target);
    check_in_place(op, target, recording_);
  }
  const Tensor& done() const {
    target_.bump_version();
    if (recording_) record(op_, target_, std::vector<Edge>{}, [](const Tensor&, Gradients&) {});
    return target_;
  }

 private:
  const char* op_;
  const Tensor& target_;
  bool recording_ = false;
};

// Writes fill(first, out, count) — elements first … first + count - 1 as T — into `target`, block
// by block.
template <class T, class F>
void write_blocks(const Tensor& target, const F& fill) {
  constexpr int64_t block = 1024;
  if (!target.is_contiguous()) {
    const Tensor plain = empty(target.shape(), target.options());
    write_blocks<T>(plain, fill);
    const NoGrad no_grad;
    copy_(target, plain);
    return;
  }
  const int64_t width = size_of(target.dtype());
  parallel_for(0, target.numel(), 16 * block, [&](int64_t begin, int64_t end) {
    alignas(64) std::array<T, block> values;
    for (int64_t at = begin; at < end; at += block) {
      const int64_t count = std::min(block, end - at);
      fill(at, values.data(), count);
      store_run(target.raw() + at * width, target.dtype(), 1, values.data(), count);
    }
  });
}

// A new tensor whose element i is element_of(i), computed as T.
template <class T, class F>
Tensor generate(const Shape& shape, Options options, const F& element_of) {
  const Tensor out = empty(shape, options);
  write_blocks<T>(out, [&](int64_t first, T* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      values[i] = element_of(first + i);
  });
  return out;
}

}  // namespace weft::detail
