// Dense tensors read and written in runs of a kernel's compute type T (float or double): in place
// where the tensor is of that type, through a converted copy of one run where it is not.
#pragma once

#include "core/tensor.h"
#include "ops/detail/convert.h"

namespace weft::detail {

// Elements are counted as they lie in memory. Each thread makes its own.
template <class T>
class BlockReader {
 public:
  // `most` elements at a time.
  BlockReader(const Tensor& tensor, int64_t most) : tensor_(tensor) {
    if (tensor.dtype() != dtype_of<T>) scratch_ = empty({most}, {.dtype = dtype_of<T>});
  }
  // Valid until the next call.
  const T* read(int64_t first, int64_t count) const {
    const std::byte* at = tensor_.raw() + first * size_of(tensor_.dtype());
    if (!scratch_.defined()) return reinterpret_cast<const T*>(at);
    load_run(scratch_.data<T>(), at, tensor_.dtype(), 1, count);
    return scratch_.data<T>();
  }

 private:
  const Tensor& tensor_;
  Tensor scratch_;
};

template <class T>
class BlockWriter {
 public:
  BlockWriter(const Tensor& tensor, int64_t most) : tensor_(tensor) {
    if (tensor.dtype() != dtype_of<T>) scratch_ = empty({most}, {.dtype = dtype_of<T>});
  }
  // Where to put elements [first, …); finish() them before the next call.
  T* at(int64_t first) const {
    return scratch_.defined() ? scratch_.data<T>() : reinterpret_cast<T*>(tensor_.raw()) + first;
  }
  void finish(int64_t first, int64_t count) const {
    if (!scratch_.defined()) return;
    std::byte* to = tensor_.raw() + first * size_of(tensor_.dtype());
    store_run(to, tensor_.dtype(), 1, static_cast<const T*>(scratch_.data<T>()), count);
  }

 private:
  const Tensor& tensor_;
  Tensor scratch_;
};

}  // namespace weft::detail
