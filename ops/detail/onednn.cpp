#include "ops/detail/onednn.h"

#include "ops/detail/copies.h"

#include <omp.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace weft::detail::onednn {
namespace {

// Marks the word that opens a tensor (or a list of sizes) inside a key, so that to_text can tell it
// apart.
constexpr int64_t kTensorMark = int64_t{0x7e45} << 40;
constexpr int64_t kShapeMark = int64_t{0x54a9} << 40;
constexpr int64_t kMarkMask = int64_t{0xffff} << 40;

struct Hash {
  size_t operator()(const Key& key) const { return key.hash(); }
};

using Cache = std::unordered_map<Key, Primitive, Hash>;

// Primitives kept per thread. A program with ever-changing shapes starts afresh when it is full.
constexpr size_t kMaxCached = 1024;

Cache& cache() {
  thread_local Cache cache;
  return cache;
}

void check_status(dnnl_status_t status, const char* what) {
  WEFT_CHECK(status == dnnl_success, "onednn", "expected ", what, " to succeed, got status ",
             static_cast<int>(status));
}

}  // namespace

const dnnl::engine& engine() {
  // Never destroyed: primitives of threads that end late refer to it.
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

bool supports(DType dtype) {
  const auto has = [](dnnl::cpu_isa isa) {
    static const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto wanted =
        static_cast<unsigned>(isa);  // a set of bits: each set includes those it builds on
    return (effective & wanted) == wanted;
  };
  switch (dtype) {
    case DType::f32:
      return true;
    case DType::bf16:
      return has(dnnl::cpu_isa::avx512_core);
    case DType::f16:
      return has(dnnl::cpu_isa::avx512_core_fp16);
    default:
      return false;
  }
}

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::f16:
      return dnnl::memory::data_type::f16;
    case DType::i32:
      return dnnl::memory::data_type::s32;
    case DType::u8:
      return dnnl::memory::data_type::u8;
    default:
      throw_error("onednn", {"expected f32, bf16, f16, i32 or u8, got ", dtype});
  }
}

dnnl::memory::dims dims(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

dnnl::memory::desc describe(const Shape& shape, const Strides& strides, DType dtype) {
  return {dims(shape), data_type(dtype), dims(strides)};
}
dnnl::memory::desc describe(const Tensor& tensor) {
  return describe(tensor.shape(), tensor.strides(), tensor.dtype());
}
dnnl::memory::desc describe_any(const Shape& shape, DType dtype) {
  return {dims(shape), data_type(dtype), dnnl::memory::format_tag::any};
}
dnnl::memory::desc describe_any(const Tensor& tensor) {
  return describe_any(tensor.shape(), tensor.dtype());
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// ---- keys ----

Key::Key(const char* op) : op_(op) {
  add(omp_in_parallel() ? 1 : omp_get_max_threads());
}

void Key::overflow() const {
  throw_error(op_, {"expected fewer attributes in the key of a oneDNN primitive"});
}

Key& Key::add(const Shape& sizes) {
  add(kShapeMark | sizes.dims());
  for (const int64_t size : sizes)
    add(size);
  return *this;
}

Key& Key::add(const Shape& sizes, const Strides& strides, DType dtype) {
  add(kTensorMark | static_cast<int64_t>(dtype) << 8 | sizes.dims());
  for (const int64_t size : sizes)
    add(size);
  for (const int64_t stride : strides)
    add(stride);
  return *this;
}

size_t Key::hash() const {
  uint64_t hash = reinterpret_cast<uintptr_t>(op_);
  for (int i = 0; i < count_; ++i) {  // the mixing step of splitmix64, shortened
    hash = (hash ^ static_cast<uint64_t>(words_[static_cast<size_t>(i)])) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
  }
  return hash;
}

bool Key::operator==(const Key& other) const {
  return op_ == other.op_ && count_ == other.count_ &&
         std::equal(words_.begin(), words_.begin() + count_, other.words_.begin());
}

std::string Key::to_text() const {
  std::string text;
  int at = 1;  // the first word is the number of threads
  const auto take = [&](int count) {
    Shape values;
    while (count-- > 0)
      values.push_back(words_[static_cast<size_t>(at++)]);
    return values;
  };
  while (at < count_) {
    const int64_t word = words_[static_cast<size_t>(at++)];
    if (!text.empty()) text += ", ";
    if ((word & kMarkMask) == kTensorMark) {
      const Shape sizes = take(static_cast<int>(word & 0xff));
      const Strides strides = take(sizes.dims());
      text += concat({static_cast<DType>(word >> 8 & 0xff), sizes, " (strides ", strides, ")"});
    } else if ((word & kMarkMask) == kShapeMark) {
      text += to_string(take(static_cast<int>(word & 0xff)));
    } else {
      text += std::to_string(word);
    }
  }
  return text;
}

// ---- primitives ----

Primitive::Primitive(const dnnl::primitive_desc_base& description)
    : description_(description),
      primitive_(description.get()),
      is_reference_(std::string_view(description_.impl_info_str()).starts_with("ref")) {
  scratchpad_bytes_ =
      static_cast<int64_t>(description_.query_md(dnnl::query::scratchpad_md).get_size());
  if (scratchpad_bytes_ > 0) slot(DNNL_ARG_SCRATCHPAD);
}

Primitive::Slot& Primitive::slot(int argument) {
  for (Slot& slot : slots_) {
    if (slot.name == argument) return slot;
  }
  Slot& made = slots_.emplace_back();
  made.name = argument;
  made.layout = description_.query_md(dnnl::query::exec_arg_md, argument);
  made.memory = dnnl::memory(made.layout, engine(), DNNL_MEMORY_NONE);
  return made;
}

Tensor Primitive::buffer(int argument) {
  return empty({static_cast<int64_t>(layout(argument).get_size())}, {.dtype = u8});
}

Primitive& Primitive::reorder(std::unique_ptr<Primitive>& place, Slot& slot,
                              const dnnl::memory::desc& outside, bool in) {
  if (slot.outside != outside) {
    slot.in.reset();
    slot.back.reset();
    slot.outside = outside;
  }
  if (!place) {
    const dnnl::memory::desc& from = in ? outside : slot.layout;
    const dnnl::memory::desc& to = in ? slot.layout : outside;
    place = std::make_unique<Primitive>(
        dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes()));
  }
  return *place;
}

Tensor Primitive::arranged(int argument, const Tensor& tensor) {
  Slot& at = slot(argument);
  const dnnl::memory::desc outside = describe(tensor);
  if (at.layout == outside) return tensor;
  Tensor result = buffer(argument);
  reorder(at.in, at, outside, true)
      .run({{DNNL_ARG_FROM, tensor.raw()}, {DNNL_ARG_TO, result.raw()}});
  return result;
}

void Primitive::restore(int argument, const Tensor& buffer, const Tensor& tensor) {
  Slot& at = slot(argument);
  reorder(at.back, at, describe(tensor), false)
      .run({{DNNL_ARG_FROM, buffer.raw()}, {DNNL_ARG_TO, tensor.raw()}});
}

void Primitive::run(std::initializer_list<Argument> arguments) {
  if (is_reference_) ++copy_counts().references;
  constexpr size_t kMaxArguments = 16;
  std::array<dnnl_exec_arg_t, kMaxArguments> list;
  WEFT_CHECK(arguments.size() < kMaxArguments, "onednn", "expected fewer than 16 arguments, got ",
             arguments.size());
  int count = 0;
  const auto bind = [&](int name, void* data) {
    dnnl_memory_t memory = slot(name).memory.get();
    check_status(dnnl_memory_set_data_handle(memory, data), "setting a data handle");
    list[static_cast<size_t>(count++)] = {name, memory};
  };
  for (const Argument& argument : arguments)
    bind(argument.name, argument.data);
  Tensor scratchpad;
  if (scratchpad_bytes_ > 0) {
    scratchpad = empty({scratchpad_bytes_}, {.dtype = u8});
    bind(DNNL_ARG_SCRATCHPAD, scratchpad.raw());
  }
  check_status(dnnl_primitive_execute(primitive_.get(), stream().get(), count, list.data()),
               "a primitive");
  check_status(dnnl_stream_wait(stream().get()), "waiting for a primitive");
}

// ---- the cache ----

Primitive* find(const Key& key) {
  const auto found = cache().find(key);
  return found == cache().end() ? nullptr : &found->second;
}

Primitive& insert(const Key& key, Primitive made) {
  ++copy_counts().primitives;
  if (cache().size() >= kMaxCached) cache().clear();
  return cache().emplace(key, std::move(made)).first->second;
}

void refuse(const Key& key, const dnnl::error& error) {
  throw_error(key.op(),
              {"expected operands that oneDNN accepts, got ", key.to_text(), ": ", error.what()});
}

}  // namespace weft::detail::onednn
