#include "ops/detail/loop.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/convert.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::detail {
namespace {

constexpr int64_t kGrain = 16 * kBlock;  // below this a second thread costs more than it saves

// One tensor as the loop sees it.
struct Operand {
  std::byte* data = nullptr;
  DType dtype = f32;
  int64_t width = 4;
  std::array<int64_t, kMaxDims> strides{};  // elements, per loop dim
};

// The iteration space: out's dims in the order they lie in memory, neighbours merged where every
// operand allows it. Operand 0 is the output.
struct Space {
  int dims = 0;
  std::array<int64_t, kMaxDims> sizes{};
  std::array<Operand, kMaxInputs + 1> operands;
  int count = 0;
};

Operand operand_of(const Tensor& tensor) {
  return {tensor.raw(), tensor.dtype(), size_of(tensor.dtype()), {}};
}

Space make_space(const Tensor& out, std::span<const Tensor* const> inputs) {
  Space space;
  space.count = static_cast<int>(inputs.size()) + 1;
  space.operands[0] = operand_of(out);
  for (size_t i = 0; i < inputs.size(); ++i)
    space.operands[i + 1] = operand_of(*inputs[i]);
  const std::array<int, kMaxDims> order = memory_order(out.strides());
  for (int i = 0; i < out.dims(); ++i) {
    const int dim = order[static_cast<size_t>(i)];
    const int64_t size = out.shape()[dim];
    if (size == 1) continue;
    std::array<int64_t, kMaxInputs + 1> strides{};
    strides[0] = out.strides()[dim];
    for (size_t k = 0; k < inputs.size(); ++k) {
      const int at = dim - (out.dims() - inputs[k]->dims());  // shapes align at their last dim
      strides[k + 1] = at >= 0 && inputs[k]->shape()[at] != 1 ? inputs[k]->strides()[at] : 0;
    }
    const auto last = static_cast<size_t>(space.dims - 1);
    bool merges = space.dims > 0;
    for (size_t k = 0; merges && k < static_cast<size_t>(space.count); ++k) {
      merges = space.operands[k].strides[last] == strides[k] * size;
    }
    const auto at = merges ? last : static_cast<size_t>(space.dims++);
    space.sizes[at] = (merges ? space.sizes[at] : 1) * size;
    for (size_t k = 0; k < static_cast<size_t>(space.count); ++k)
      space.operands[k].strides[at] = strides[k];
  }
  if (space.dims == 0) {  // one element
    space.dims = 1;
    space.sizes[0] = 1;
    for (Operand& operand : space.operands)
      operand.strides[0] = 1;
  }
  return space;
}

// Calls visit(byte offset, done, length) for the runs along the last dim that make up elements
// [begin, begin + count) of `operand`.
template <class F>
void for_runs(const Space& space, const Operand& operand, int64_t begin, int64_t count, F visit) {
  std::array<int64_t, kMaxDims> index{};
  int64_t offset = 0;
  for (int d = space.dims - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    index[i] = begin % space.sizes[i];
    begin /= space.sizes[i];
    offset += index[i] * operand.strides[i];
  }
  const auto last = static_cast<size_t>(space.dims - 1);
  for (int64_t done = 0; done < count;) {
    const int64_t length = std::min(space.sizes[last] - index[last], count - done);
    visit(offset * operand.width, done, length);
    done += length;
    index[last] += length;
    offset += length * operand.strides[last];
    for (size_t d = last; d > 0 && index[d] == space.sizes[d]; --d) {
      offset += operand.strides[d - 1] - index[d] * operand.strides[d];
      index[d] = 0;
      ++index[d - 1];
    }
  }
}

template <class T>
class BlockRunner {
 public:
  BlockRunner(const Space& space, BlockKernel kernel, const void* functor)
      : space_(space), kernel_(kernel), functor_(functor) {}

  void operator()(int64_t begin, int64_t end) const {
    alignas(64) T scratch[kMaxInputs + 1][kBlock];
    const auto inputs = static_cast<size_t>(space_.count - 1);
    for (size_t i = 0; i < inputs; ++i) {  // a repeated value is loaded once
      if (is_constant(space_.operands[i + 1]))
        load_run(scratch[i], space_.operands[i + 1].data, space_.operands[i + 1].dtype, 0, kBlock);
    }
    const bool direct_out = is_direct(space_.operands[0]);
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      const int64_t whole = count / kPacket * kPacket;
      std::array<const void*, kMaxInputs> in{};
      for (size_t i = 0; i < inputs; ++i)
        in[i] = load(space_.operands[i + 1], at, count, scratch[i]);
      T* out =
          direct_out ? reinterpret_cast<T*>(space_.operands[0].data) + at : scratch[kMaxInputs];
      if (whole > 0) kernel_(whole, in.data(), out, functor_);
      if (whole < count) tail(in, out, whole, count - whole);
      if (!direct_out) store(space_.operands[0], at, count, scratch[kMaxInputs]);
    }
  }

 private:
  bool is_constant(const Operand& operand) const {
    return space_.dims == 1 && operand.strides[0] == 0;
  }
  bool is_direct(const Operand& operand) const {
    return space_.dims == 1 && operand.strides[0] == 1 && operand.dtype == dtype_of<T>;
  }

  const void* load(const Operand& operand, int64_t at, int64_t count, T* scratch) const {
    if (is_direct(operand)) return reinterpret_cast<const T*>(operand.data) + at;
    if (is_constant(operand)) return scratch;
    const int64_t stride = operand.strides[static_cast<size_t>(space_.dims - 1)];
    for_runs(space_, operand, at, count, [&](int64_t offset, int64_t done, int64_t length) {
      load_run(scratch + done, operand.data + offset, operand.dtype, stride, length);
    });
    return scratch;
  }

  void store(const Operand& operand, int64_t at, int64_t count, const T* scratch) const {
    const int64_t stride = operand.strides[static_cast<size_t>(space_.dims - 1)];
    for_runs(space_, operand, at, count, [&](int64_t offset, int64_t done, int64_t length) {
      store_run(operand.data + offset, operand.dtype, stride, scratch + done, length);
    });
  }

  // The last few elements, through packets padded with copies of the last one (any valid value
  // would do).
  void tail(std::array<const void*, kMaxInputs> in, T* out, int64_t from, int64_t count) const {
    alignas(64) T padded[kMaxInputs + 1][kPacket];
    for (size_t i = 0; i + 1 < static_cast<size_t>(space_.count); ++i) {
      const T* values = static_cast<const T*>(in[i]) + from;
      for (int64_t k = 0; k < kPacket; ++k)
        padded[i][k] = values[std::min(k, count - 1)];
      in[i] = padded[i];
    }
    kernel_(kPacket, in.data(), padded[kMaxInputs], functor_);
    std::memcpy(out + from, padded[kMaxInputs], static_cast<size_t>(count) * sizeof(T));
  }

  const Space& space_;
  BlockKernel kernel_;
  const void* functor_;
};

template <class T>
void run(const Space& space, int64_t numel, BlockKernel kernel, const void* functor) {
  parallel_for(0, numel, kGrain, BlockRunner<T>(space, kernel, functor));
}

}  // namespace

void run_loop(const Tensor& out, std::span<const Tensor* const> inputs, DType compute,
              BlockKernel kernel, const void* functor) {
  if (out.numel() == 0) return;
  if (current_profiler()) [[unlikely]] {
    int64_t bytes = out.bytes();
    for (const Tensor* input : inputs)
      bytes += input->bytes();
    profile_work(out.numel(), bytes);
  }
  const Space space = make_space(out, inputs);
  switch (compute) {
    case DType::f32:
      return run<float>(space, out.numel(), kernel, functor);
    case DType::f64:
      return run<double>(space, out.numel(), kernel, functor);
    case DType::i64:
      return run<int64_t>(space, out.numel(), kernel, functor);
    default:
      throw_error("run_loop", {"expected a compute dtype of f32, f64 or i64, got ", compute});
  }
}

Tensor elementwise_output(const Shape& shape, DType dtype, std::span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) {
    if (input->shape() == shape && input->is_dense()) return empty_like(*input, dtype);
  }
  return empty(shape, {dtype, inputs[0]->device()});
}

}  // namespace weft::detail
