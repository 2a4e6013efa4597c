// oneDNN behind a small door: the engine, this thread's stream, descriptors of tensors, and a cache
// that makes a primitive once for each combination of shapes. A warm call costs about a
// microsecond.
//
//   onednn::Key key("conv2d");
//   key.add(x).add(weight).add(options.stride);
//   onednn::Primitive& forward = onednn::cached(key, [&] {
//     return onednn::Primitive(dnnl::convolution_forward::primitive_desc(
//         onednn::engine(), …, onednn::describe_any(weight), …, onednn::attributes()));
//   });
//   const Tensor packed = forward.arranged(DNNL_ARG_WEIGHTS, weight);
//   forward.run({{DNNL_ARG_SRC, x.raw()}, {DNNL_ARG_WEIGHTS, packed.raw()}, {DNNL_ARG_DST,
//   out.raw()}});
//
// oneDNN cuts work by the number of threads, which is therefore part of every key: results of
// primitives that split a sum over threads may differ in the last bits between thread counts.
// Whatever oneDNN refuses becomes a weft::Error that names the operator and the shapes.
#pragma once

#include "core/tensor.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <vector>

namespace weft::detail::onednn {

// The process's CPU engine (immutable) and this thread's stream, on which work has ended when a
// call returns.
const dnnl::engine& engine();
dnnl::stream& stream();

// Whether this processor computes in `dtype` natively: f32 always; bf16 and f16 where oneDNN has
// kernels for the instruction set. Where it does not, operators convert to f32, compute, and
// convert back.
bool supports(DType dtype);

// Descriptors: a tensor's own layout (strides may be any that do not overlap); the same sizes in
// whatever layout the primitive likes best.
dnnl::memory::data_type data_type(DType dtype);
dnnl::memory::dims dims(const Shape& shape);
dnnl::memory::desc describe(const Tensor& tensor);
dnnl::memory::desc describe(const Shape& shape, const Strides& strides, DType dtype);
dnnl::memory::desc describe_any(const Tensor& tensor);
dnnl::memory::desc describe_any(const Shape& shape, DType dtype);

// Attributes every primitive here must have: the scratchpad is ours, from the allocator with the
// ledger.
dnnl::primitive_attr attributes();

// What a primitive is cached under: a name, then tensors (dtype, sizes, strides) and numbers. Plain
// words.
class Key {
 public:
  // `op` is a string literal and names forward and backward apart ("conv2d", "conv2d backward
  // data").
  explicit Key(const char* op);

  Key& add(int64_t value) {
    if (count_ == kWords) overflow();
    words_[static_cast<size_t>(count_++)] = value;
    return *this;
  }
  Key& add(const Shape& sizes);
  Key& add(const Shape& sizes, const Strides& strides, DType dtype);
  Key& add(const Tensor& tensor) { return add(tensor.shape(), tensor.strides(), tensor.dtype()); }

  const char* op() const { return op_; }
  size_t hash() const;
  bool operator==(const Key& other) const;
  // What was added, for error texts: "f32[8, 16] (strides [16, 1]), 3".
  std::string to_text() const;

 private:
  static constexpr int kWords = 96;
  [[noreturn]] void overflow() const;

  const char* op_;
  int count_ = 0;
  std::array<int64_t, kWords> words_;
};

struct Argument {
  int name;    // DNNL_ARG_…
  void* data;  // first element; null for an empty tensor
};

// A compiled primitive with the memory objects of its arguments. Belongs to one thread.
class Primitive {
 public:
  explicit Primitive(const dnnl::primitive_desc_base& description);

  // Whether oneDNN has nothing but its reference implementation for it, which takes seconds where
  // others take milliseconds.
  bool is_reference() const { return is_reference_; }
  // The layout this argument has or wants.
  const dnnl::memory::desc& layout(int argument) { return slot(argument).layout; }
  bool has_layout_of(int argument, const Tensor& tensor) {
    return layout(argument) == describe(tensor);
  }
  // Uninitialised memory for the argument in that layout: a tensor of bytes.
  Tensor buffer(int argument);
  // `tensor` as the argument wants it: itself if its layout is the wanted one, else a reordered
  // copy, as bytes.
  Tensor arranged(int argument, const Tensor& tensor);
  // The way back for an output computed into buffer(argument): writes it to `tensor`.
  void restore(int argument, const Tensor& buffer, const Tensor& tensor);

  // Computes. Every argument the primitive takes must be named; the scratchpad is added.
  void run(std::initializer_list<Argument> arguments);

 private:
  struct Slot {
    int name = 0;
    dnnl::memory::desc layout;
    dnnl::memory memory;
    dnnl::memory::desc outside;  // the layout that the reorders below translate from and to
    std::unique_ptr<Primitive> in, back;  // made when first needed
  };
  Slot& slot(int argument);
  Primitive& reorder(std::unique_ptr<Primitive>& place, Slot& slot,
                     const dnnl::memory::desc& outside, bool in);

  dnnl::primitive_desc_base description_;
  dnnl::primitive primitive_;
  int64_t scratchpad_bytes_ = 0;
  bool is_reference_ = false;
  std::vector<Slot> slots_;
};

// The cache itself; what callers want is below.
Primitive* find(const Key& key);
Primitive& insert(const Key& key, Primitive made);
[[noreturn]] void refuse(const Key& key, const dnnl::error& error);

// The primitive of this thread for `key`, made by make() -> Primitive when the key is new. The
// reference holds until the next call of cached.
template <std::invocable F>
Primitive& cached(const Key& key, const F& make) {
  if (Primitive* found = find(key)) return *found;
  try {
    return insert(key, make());
  } catch (const dnnl::error& error) {
    refuse(key, error);
  }
}

}  // namespace weft::detail::onednn
