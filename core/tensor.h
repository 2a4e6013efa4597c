// Tensor: a cheap handle on strided storage.
//
// Copying a Tensor copies the handle; views share storage, and an in-place change through one is
// seen by all. Reading from several threads is safe, changing a tensor while another thread uses it
// is not.
//
// What tensors can do are free functions (ops/ops.h): relu(x), matmul(a, b), reshape(x, {2, -1}).
#pragma once

#include "core/device.h"
#include "core/dtype.h"
#include "core/ref.h"
#include "core/shape.h"
#include "core/storage.h"

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace weft {

struct Options {
  DType dtype = f32;
  Device device = cpu;
};

// What a handle points at. Users hold Tensor; the engine and the operators see the body.
class TensorBody final : public RefCounted {
 public:
  Ref<Storage> storage;
  std::byte* data = nullptr;  // first element: storage data + offset; null while memory is gone
  Shape shape;
  Strides strides;
  int64_t numel = 0;
  DType dtype = f32;
  bool contiguous = true;  // row-major without gaps

  // Written by autograd only (see autograd/node.h).
  bool requires_grad = false;
  uint32_t output = 0;       // which output of `producer` this is
  Ref<RefCounted> producer;  // Node that made it; null for leaves
  Ref<RefCounted> leaf;      // LeafState: gradient and hooks; made when first needed
};

class Tensor {
 public:
  // An undefined tensor: only defined() may be asked of it.
  Tensor() = default;
  explicit Tensor(Ref<TensorBody> body) : body_(std::move(body)) {}

  bool defined() const { return static_cast<bool>(body_); }
  TensorBody* body() const { return body_.get(); }
  const Ref<TensorBody>& ref() const { return body_; }
  bool is_same(const Tensor& other) const { return body_ == other.body_; }

  const Shape& shape() const { return body_->shape; }
  const Strides& strides() const { return body_->strides; }
  int dims() const { return body_->shape.dims(); }
  // Size of a dim; negative dims count from the end.
  int64_t size(int64_t dim) const { return body_->shape[own_dim(dim, "size")]; }
  int64_t stride(int64_t dim) const { return body_->strides[own_dim(dim, "stride")]; }
  int64_t numel() const { return body_->numel; }
  int64_t bytes() const { return body_->numel * size_of(body_->dtype); }
  DType dtype() const { return body_->dtype; }
  Device device() const { return body_->storage->device(); }
  Options options() const { return {dtype(), device()}; }

  const Ref<Storage>& storage() const { return body_->storage; }
  // Bytes from the start of the storage to the first element.
  int64_t byte_offset() const { return body_->data - body_->storage->data(); }

  // Row-major without gaps.
  bool is_contiguous() const { return body_->contiguous; }
  // Four dims, stored N, H, W, C.
  bool is_channels_last() const;
  // Some permutation of dims is contiguous: the elements fill one run of memory exactly.
  bool is_dense() const;

  // Address of the first element; elements lie at strides() from it. Throws where the memory is
  // gone for the time being: a parameter that rests on other ranks (dist/parallel.h).
  std::byte* raw() const {
    if (!body_->data) [[unlikely]]
      check_present();
    return body_->data;
  }
  // The same as T*, checked against dtype().
  template <class T>
  T* data() const {
    WEFT_CHECK(dtype() == dtype_of<T>, "data", "expected a tensor of ", dtype_of<T>, ", got ",
               dtype());
    return reinterpret_cast<T*>(raw());
  }

  // The value of a one-element tensor.
  double item() const;
  int64_t item_int() const;
  // All elements in logical (row-major) order, converted to T. Real numbers that an integer type
  // (item_int, too) cannot hold become the nearest that it can, NaN becomes 0.
  template <class T>
  std::vector<T> to_vector() const;

  // A view of the same storage without gradient history (shares the version, too).
  Tensor detach() const;

  uint32_t version() const { return body_->storage->version(); }
  // Says that elements were changed in place; operators that write do.
  void bump_version() const { body_->storage->bump_version(); }

  // Gradients; the functions below are defined in autograd/.
  bool requires_grad() const { return body_->requires_grad; }
  // Leaves only, floating types only. Returns the tensor itself.
  const Tensor& set_requires_grad(bool value = true) const;
  bool is_leaf() const { return !body_->producer; }
  // The gradient that backward accumulated into this leaf; undefined if none. A later backward adds
  // to it in place.
  Tensor grad() const;
  // Replaces it; an undefined tensor drops it.
  void set_grad(const Tensor& grad) const;
  // Runs backward from this tensor: see autograd/engine.h.
  void backward() const;

 private:
  // wrap_dim, which lets operators take dim 0 of a 0-dim tensor, would point past the sizes there.
  int own_dim(int64_t dim, const char* op) const {
    WEFT_CHECK(dims() > 0, op, "expected a dim of the tensor, got ", dim, " for a 0-dim tensor");
    return wrap_dim(dim, dims(), op);
  }

  void check_present() const;

  Ref<TensorBody> body_;
};

// Uninitialised, row-major. Refuses negative sizes and sizes past int64.
Tensor empty(const Shape& shape, Options options = {});
// Uninitialised with given strides, which must describe a dense layout of `shape`.
Tensor empty_strided(const Shape& shape, const Strides& strides, Options options = {});
// Uninitialised, of the same shape, dtype and device, and the same strides where those are dense.
Tensor empty_like(const Tensor& like);
Tensor empty_like(const Tensor& like, DType dtype);

// A view of `storage`; bounds are checked. `byte_offset` must be a multiple of the element size.
Tensor view_of(const Ref<Storage>& storage, int64_t byte_offset, const Shape& shape,
               const Strides& strides, DType dtype);
// A view of the same elements under other sizes and strides, `element_offset` elements further on,
// without history. Bounds are not checked, view operators compute what they pass; overflow is.
Tensor alias(const Tensor& tensor, const Shape& shape, const Strides& strides,
             int64_t element_offset = 0);

// Copies values into a new tensor of dtype_of<T>; one dim, or `shape`.
template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape);
template <class T>
Tensor from_values(const std::vector<T>& values) {
  return from_values(std::span<const T>(values), {static_cast<int64_t>(values.size())});
}
template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape) {
  return from_values(std::span<const T>(values), shape);
}

// "tensor f32[2, 3]\n[[1, 2, 3],\n [4, 5, 6]]"; large tensors show their edges.
std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

}  // namespace weft
