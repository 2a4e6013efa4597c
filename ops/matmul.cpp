#include "ops/matmul.h"

#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/gemm.h"
#include "ops/view.h"

namespace weft {
namespace {

// Matrices of at least two dims with their leading dims broadcast; no history.
Tensor product(const Tensor& a, const Tensor& b) {
  const auto leading = [](const Tensor& x) {
    return Shape(std::span(x.shape().begin(), x.shape().end() - 2));
  };
  const Shape batch = broadcast_shapes(leading(a), leading(b), "matmul");
  const auto expanded = [&batch](const Tensor& x) {
    Shape shape = batch;
    shape.push_back(x.size(-2));
    shape.push_back(x.size(-1));
    return x.shape() == shape ? x : expand(x, shape);
  };
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  const Tensor out = empty(shape, a.options());
  detail::multiply("matmul", out, expanded(a), expanded(b));
  return out;
}

Tensor of_matrices(const Tensor& a, const Tensor& b) {
  Tensor out = product(a.detach(), b.detach());
  if (recording(a, b)) {
    // Only what the wanted gradients need is kept.
    const Saved left(b.requires_grad() ? a : Tensor());
    const Saved right(a.requires_grad() ? b : Tensor());
    record("matmul", out, inputs(a, b),
           [left, right, a_shape = a.shape(), b_shape = b.shape()](const Tensor& g, Gradients& to) {
             if (to.wants(0)) {
               const Tensor da = product(g, transpose(right.get("matmul"), -1, -2));
               to.set(0, detail::to_input(da, a_shape, g.dtype()));
             }
             if (to.wants(1)) {
               const Tensor db = product(transpose(left.get("matmul"), -1, -2), g);
               to.set(1, detail::to_input(db, b_shape, g.dtype()));
             }
           });
  }
  return out;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const ProfileOp profile("matmul");
  detail::check_defined("matmul", a);
  detail::check_defined("matmul", b);
  detail::check_same_device("matmul", a, b);
  WEFT_CHECK(a.dims() >= 1 && b.dims() >= 1, "matmul",
             "expected operands of at least one dim, got ", a.shape(), " and ", b.shape());
  WEFT_CHECK(a.size(-1) == b.size(b.dims() == 1 ? 0 : -2), "matmul",
             "expected inner sizes that agree, got ", a.shape(), " and ", b.shape());
  if (a.dtype() != b.dtype()) {
    const DType dtype = promote(a.dtype(), b.dtype());
    return matmul(to(a, dtype), to(b, dtype));
  }
  if (a.dims() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.dims() == 1 ? 0 : -2);
  if (b.dims() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  if (a.dims() > 2 && b.dims() == 2) {  // one tall product instead of many
    Shape shape = a.shape();
    shape[a.dims() - 1] = b.size(1);
    const Shape leading(std::span(a.shape().begin(), a.shape().end() - 1));
    const Shape rows{checked_numel(leading, 1, "matmul"), a.size(-1)};
    return reshape(of_matrices(reshape(a, rows), b), shape);
  }
  return of_matrices(a, b);
}

}  // namespace weft
