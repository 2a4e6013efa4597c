#include "ops/linear.h"

#include "core/profiler.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/gemm.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace weft {
namespace {

Tensor transposed(const Tensor& matrix) {
  return alias(matrix, {matrix.shape()[1], matrix.shape()[0]},
               {matrix.strides()[1], matrix.strides()[0]});
}

Tensor as_rows(const Tensor& x) {
  if (x.dims() == 2) return x;
  const Shape leading(std::span(x.shape().begin(), x.shape().end() - 1));
  return reshape(x, {checked_numel(leading, 1, "linear"), x.shape().back()});
}

Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias = {}) {
  const Tensor out = empty({a.shape()[0], b.shape()[1]}, a.options());
  detail::multiply("linear", out, a, b, bias);
  return out;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const ProfileOp profile("linear");
  detail::check_defined("linear", x);
  detail::check_defined("linear", weight);
  WEFT_CHECK(weight.dims() == 2 && x.dims() >= 1 && x.shape().back() == weight.shape()[1], "linear",
             "expected x [..., in] and weight [out, in], got ", x.shape(), " and ", weight.shape());
  WEFT_CHECK(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
             "linear", "expected one dtype, got x of ", x.dtype(), ", weight of ", weight.dtype(),
             " and bias of ", bias.defined() ? bias.dtype() : weight.dtype());
  WEFT_CHECK(!bias.defined() || (bias.dims() == 1 && bias.numel() == weight.shape()[0]), "linear",
             "expected a bias [", weight.shape()[0], "], got ",
             bias.defined() ? bias.shape() : Shape());
  detail::check_same_device("linear", x, weight);
  const Tensor rows = as_rows(x.detach());
  Tensor out = product(rows, transposed(weight), bias);
  if (x.dims() != 2) {
    Shape shape = x.shape();
    shape[x.dims() - 1] = weight.shape()[0];
    out = alias(out, shape, contiguous_strides(shape));
  }
  if (recording(x, weight, bias)) {
    // Only what the wanted gradients need is kept.
    const Saved saved_x(weight.requires_grad() ? x : Tensor());
    const Saved saved_weight(x.requires_grad() ? weight : Tensor());
    record("linear", out, inputs(x, weight, bias),
           [saved_x, saved_weight, shape = x.shape()](const Tensor& g, Gradients& to) {
             const Tensor gradient = as_rows(g);
             if (to.wants(0)) {
               const Tensor dx = product(gradient, saved_weight.get("linear"));
               to.set(0, shape.dims() == 2 ? dx : alias(dx, shape, contiguous_strides(shape)));
             }
             if (to.wants(1)) {
               const Tensor x_rows = as_rows(saved_x.get("linear"));
               const Shape shape_w{gradient.shape()[1], x_rows.shape()[1]};
               Tensor dw = to.room(1);
               if (!dw.defined() || dw.shape() != shape_w || !dw.is_contiguous() ||
                   dw.dtype() != gradient.dtype())
                 dw = empty(shape_w, gradient.options());
               detail::multiply("linear", dw, transposed(gradient), x_rows);
               to.set(1, dw);
             }
             if (to.wants(2)) to.set(2, sum(gradient, {0}));
           });
  }
  return out;
}

}  // namespace weft
