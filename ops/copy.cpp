#include "ops/copy.h"

#include "autograd/engine.h"
#include "core/profiler.h"
#include "ops/detail/elementwise.h"
#include "ops/elementwise.h"

namespace weft {
namespace {

struct Identity {
  template <class V>
  V operator()(V x) const {
    return x;
  }
};

// Writes x into out, computing in the wider of the two dtypes' compute types.
void write(const Tensor& out, const Tensor& x) {
  if (out.dtype() == x.dtype() && out.strides() == x.strides() && out.shape() == x.shape() &&
      out.is_dense()) {
    if (out.raw() == x.raw()) return;
    std::memcpy(out.raw(), x.raw(), static_cast<size_t>(x.bytes()));
    return;
  }
  const DType compute = compute_dtype(x.dtype());
  detail::apply<Identity, detail::Domain::any>(out, compute, {}, x);
}

Tensor copied(const char* name, const Tensor& x, Tensor out) {
  const ProfileOp profile(name);
  write(out, x);
  if (recording(x)) {
    record(name, out, inputs(x),
           [dtype = x.dtype()](const Tensor& g, Gradients& grads) { grads.set(0, to(g, dtype)); });
  }
  return out;
}

}  // namespace

Tensor clone(const Tensor& x) {
  detail::check_defined("clone", x);
  return copied("clone", x, empty_like(x));
}

Tensor contiguous(const Tensor& x) {
  detail::check_defined("contiguous", x);
  if (x.is_contiguous()) return x;
  return copied("contiguous", x, empty(x.shape(), x.options()));
}

Tensor channels_last(const Tensor& x) {
  detail::check_defined("channels_last", x);
  if (x.is_channels_last()) return x;
  return copied("channels_last", x,
                empty_strided(x.shape(), channels_last_strides(x.shape()), x.options()));
}

Tensor to(const Tensor& x, DType dtype) {
  detail::check_defined("to", x);
  if (x.dtype() == dtype) return x;
  const Tensor out = empty_like(x, dtype);
  if (is_floating(dtype) && is_floating(x.dtype())) return copied("to", x, out);
  write(out, x);  // integers end the history: they have no gradient
  return out;
}

Tensor copy_(const Tensor& target, const Tensor& src) {
  const ProfileOp profile("copy_");
  detail::check_defined("copy_", target);
  detail::check_defined("copy_", src);
  WEFT_CHECK(broadcast_shapes(target.shape(), src.shape(), "copy_") == target.shape(), "copy_",
             "expected a source that broadcasts to ", target.shape(), ", got ", src.shape());
  const bool is_recording = recording(target, src);
  check_in_place("copy_", target, is_recording);
  write(target, detail::apart(target, src));
  target.bump_version();
  if (is_recording) {
    record("copy_", target, inputs(src),
           [shape = src.shape(), dtype = src.dtype()](const Tensor& g, Gradients& to) {
             to.set(0, detail::to_input(g, shape, dtype));
           });
  }
  return target;
}

Tensor accumulate(Tensor sum, Tensor value) {
  const NoGrad no_grad;
  // A gradient may be a broadcast view, whose elements share memory: only a dense one can be added
  // to.
  const bool exclusive =
      sum.body()->use_count() == 1 && sum.storage()->use_count() == 1 && sum.is_dense();
  return exclusive ? add_(sum, value) : add(sum, value);
}

void add_into(const Tensor& sum, const Tensor& value) {
  const NoGrad no_grad;
  add_(sum, value);
}

void copy_into(const Tensor& target, const Tensor& value) {
  write(target, value);
  target.bump_version();
}

Tensor copy_in_layout_of(const Tensor& like, const Tensor& value) {
  Tensor out = empty_like(like, value.dtype());
  write(out, value);
  return out;
}

}  // namespace weft
