#include "core/tensor.h"

#include <array>
#include <cstring>
#include <limits>

namespace weft {
namespace {

Tensor make(Ref<Storage> storage, std::byte* data, const Shape& shape, const Strides& strides,
            DType dtype, int64_t numel) {
  auto body = make_ref<TensorBody>();
  body->storage = std::move(storage);
  body->data = data;
  body->shape = shape;
  body->strides = strides;
  body->numel = numel;
  body->dtype = dtype;
  int64_t step = 1;
  for (int i = shape.dims() - 1; i >= 0 && body->contiguous; --i) {
    if (shape[i] == 1) continue;
    body->contiguous = strides[i] == step;
    step *= shape[i];
  }
  if (numel == 0) body->contiguous = true;
  return Tensor(std::move(body));
}

void check_cpu(Device device) {
  WEFT_CHECK(device.is_cpu(), "empty", "expected device cpu, got ", device,
             ": this build has no CUDA backend");
}

// Calls visit(byte offset) for every element in logical order.
template <class F>
void for_each_offset(const Tensor& tensor, F visit) {
  std::array<int64_t, kMaxDims> index{};
  const int dims = tensor.dims();
  const int64_t width = size_of(tensor.dtype());
  int64_t offset = 0;
  for (int64_t n = tensor.numel(); n > 0; --n) {
    visit(offset * width);
    for (int d = dims - 1; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      offset += tensor.strides()[d];
      if (++index[i] < tensor.shape()[d]) break;
      offset -= tensor.strides()[d] * index[i];
      index[i] = 0;
    }
  }
}

// A number as T.
template <class T, class S>
T convert(S value) {
  if constexpr (std::is_integral_v<T> && std::is_floating_point_v<S>) {
    return nearest_integer<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
T read(const std::byte* at, DType dtype) {
  return dispatch_all(dtype, [&]<class S>() -> T {
    S value;
    std::memcpy(&value, at, sizeof value);
    if constexpr (std::is_same_v<S, BFloat16> || std::is_same_v<S, Float16>) {
      return convert<T>(static_cast<float>(value));
    } else {
      return convert<T>(value);
    }
  });
}

}  // namespace

Tensor empty(const Shape& shape, Options options) {
  check_cpu(options.device);
  const int64_t width = size_of(options.dtype);
  const int64_t numel = checked_numel(shape, width, "empty");
  Ref<Storage> storage = Storage::allocate(numel * width);
  std::byte* data = storage->data();
  return make(std::move(storage), data, shape, contiguous_strides(shape), options.dtype, numel);
}

Tensor empty_strided(const Shape& shape, const Strides& strides, Options options) {
  check_cpu(options.device);
  WEFT_CHECK(shape.dims() == strides.dims(), "empty_strided",
             "expected as many strides as sizes, got ", shape, " and ", strides);
  const int64_t width = size_of(options.dtype);
  const int64_t numel = checked_numel(shape, width, "empty_strided");
  Ref<Storage> storage = Storage::allocate(numel * width);
  std::byte* data = storage->data();
  Tensor tensor = make(std::move(storage), data, shape, strides, options.dtype, numel);
  WEFT_CHECK(tensor.is_dense(), "empty_strided", "expected strides of a dense layout of ", shape,
             ", got ", strides);
  return tensor;
}

Tensor empty_like(const Tensor& like) {
  return empty_like(like, like.dtype());
}

Tensor empty_like(const Tensor& like, DType dtype) {
  const Options options{dtype, like.device()};
  if (like.is_contiguous() || !like.is_dense()) return empty(like.shape(), options);
  return empty_strided(like.shape(), like.strides(), options);
}

Tensor view_of(const Ref<Storage>& storage, int64_t byte_offset, const Shape& shape,
               const Strides& strides, DType dtype) {
  const int64_t width = size_of(dtype);
  const int64_t numel = checked_numel(shape, width, "view_of");
  WEFT_CHECK(shape.dims() == strides.dims(), "view_of", "expected as many strides as sizes, got ",
             shape, " and ", strides);
  int64_t count = numel > 0 ? 1 : 0;  // elements from the first to the last
  int64_t bytes = 0;
  bool overflow = false;
  for (int i = 0; i < shape.dims(); ++i) {
    WEFT_CHECK(strides[i] >= 0, "view_of", "expected strides of 0 or more, got ", strides);
    int64_t reach = 0;
    if (numel > 0) overflow = overflow || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    overflow = overflow || __builtin_add_overflow(count, reach, &count);
  }
  overflow = overflow || __builtin_mul_overflow(count, width, &bytes);
  WEFT_CHECK(!overflow && byte_offset >= 0 && byte_offset <= storage->bytes() &&
                 bytes <= storage->bytes() - byte_offset && byte_offset % width == 0,
             "view_of", "expected a view inside ", storage->bytes(), " bytes, got shape ", shape,
             " and strides ", strides, " of ", dtype, " from byte ", byte_offset);
  return make(storage, storage->data() + byte_offset, shape, strides, dtype, numel);
}

Tensor alias(const Tensor& tensor, const Shape& shape, const Strides& strides,
             int64_t element_offset) {
  const int64_t width = size_of(tensor.dtype());
  // Strides of 0 make any size possible, and nobody behind this line multiplies with care.
  const int64_t numel = checked_numel(shape, width, "alias");
  return make(tensor.storage(), tensor.raw() + element_offset * width, shape, strides,
              tensor.dtype(), numel);
}

void Tensor::check_present() const {
  WEFT_CHECK(body_->numel == 0, "tensor", "expected values in memory, got a tensor of shape ",
             shape(),
             body_->storage->data()
                 ? " whose values rest on other ranks: a sharded parameter is whole only while its "
                   "unit runs forward or backward"
                 : " whose values are yet to be made: it was built within a Deferred scope");
}

Tensor Tensor::detach() const {
  auto body = make_ref<TensorBody>();
  body->storage = body_->storage;
  body->data = body_->data;
  body->shape = body_->shape;
  body->strides = body_->strides;
  body->numel = body_->numel;
  body->dtype = body_->dtype;
  body->contiguous = body_->contiguous;
  return Tensor(std::move(body));
}

bool Tensor::is_channels_last() const {
  if (dims() != 4) return false;
  if (numel() == 0) return true;  // as is_contiguous has it: no elements, no order
  const Strides wanted = channels_last_strides(shape());
  for (int i = 0; i < 4; ++i) {
    if (shape()[i] != 1 && strides()[i] != wanted[i]) return false;
  }
  return true;
}

bool Tensor::is_dense() const {
  if (is_contiguous()) return true;
  const std::array<int, kMaxDims> order = memory_order(strides());
  int64_t step = 1;
  for (int i = dims() - 1; i >= 0; --i) {
    const int dim = order[static_cast<size_t>(i)];
    if (shape()[dim] == 1) continue;
    if (strides()[dim] != step) return false;
    step *= shape()[dim];
  }
  return true;
}

double Tensor::item() const {
  WEFT_CHECK(numel() == 1, "item", "expected one element, got shape ", shape());
  return read<double>(raw(), dtype());
}

int64_t Tensor::item_int() const {
  WEFT_CHECK(numel() == 1, "item", "expected one element, got shape ", shape());
  return read<int64_t>(raw(), dtype());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(numel()));
  for_each_offset(*this,
                  [&](int64_t offset) { values.push_back(read<T>(raw() + offset, dtype())); });
  return values;
}

template std::vector<double> Tensor::to_vector<double>() const;
template std::vector<float> Tensor::to_vector<float>() const;
template std::vector<int64_t> Tensor::to_vector<int64_t>() const;
template std::vector<int32_t> Tensor::to_vector<int32_t>() const;
template std::vector<uint8_t> Tensor::to_vector<uint8_t>() const;

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape) {
  Tensor tensor = empty(shape, {.dtype = dtype_of<T>});
  WEFT_CHECK(static_cast<int64_t>(values.size()) == tensor.numel(), "from_values", "expected ",
             tensor.numel(), " values for shape ", shape, ", got ", values.size());
  if (!values.empty()) std::memcpy(tensor.raw(), values.data(), values.size_bytes());
  return tensor;
}

template Tensor from_values(std::span<const float>, const Shape&);
template Tensor from_values(std::span<const double>, const Shape&);
template Tensor from_values(std::span<const int64_t>, const Shape&);
template Tensor from_values(std::span<const int32_t>, const Shape&);
template Tensor from_values(std::span<const uint8_t>, const Shape&);
template Tensor from_values(std::span<const bool>, const Shape&);
template Tensor from_values(std::span<const BFloat16>, const Shape&);
template Tensor from_values(std::span<const Float16>, const Shape&);

}  // namespace weft
