#include "ops/reduce.h"

#include "autograd/record.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/reducers.h"

namespace weft {

using namespace detail;

namespace {

// A view of g that repeats it to x's shape.
Tensor spread(const Tensor& g, const Shape& x, DimSet dims) {
  const Tensor thin = restore_dims(g, x, dims);
  Strides strides = thin.strides();
  for (int d = 0; d < x.dims(); ++d) {
    if (has_dim(dims, d)) strides[d] = 0;
  }
  return alias(thin, x, strides);
}

Tensor sum_over(const char* name, const Tensor& x, DimSet dims, bool keepdim) {
  const DType dtype = is_integral(x.dtype()) ? i64 : x.dtype();
  Tensor out = drop_dims(reduce<Numbers::any>(x, dims, dtype, Plain<Adding>{}), dims, keepdim);
  if (recording(x)) {
    record(name, out, inputs(x), [shape = x.shape(), dims](const Tensor& g, Gradients& to) {
      to.set(0, spread(g, shape, dims));
    });
  }
  return out;
}

}  // namespace

Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined("sum", x);
  return sum_over("sum", x, dim_set("sum", x, dims), keepdim);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", x);
  if (x.shape() == shape) return x;
  const int extra = x.dims() - shape.dims();
  bool fits = extra >= 0;
  DimSet dims = 0;
  for (int d = 0; fits && d < x.dims(); ++d) {
    const bool summed = d < extra || (shape[d - extra] == 1 && x.shape()[d] != 1);
    if (summed) dims |= DimSet{1} << d;
    fits = summed || shape[d - extra] == x.shape()[d];
  }
  WEFT_CHECK(fits, "sum_to", "expected a shape that broadcasts to ", x.shape(), ", got ", shape);
  const DType dtype = is_integral(x.dtype()) ? i64 : x.dtype();
  const Tensor thin = reduce<Numbers::any>(x, dims, dtype, Plain<Adding>{});
  Tensor out = drop_dims(thin, (DimSet{1} << extra) - 1, false);
  if (recording(x)) {
    record("sum_to", out, inputs(x), [shape = x.shape(), dims, extra](const Tensor& g, Gradients& to) {
      to.set(0, spread(restore_dims(g, shape, (DimSet{1} << extra) - 1), shape, dims));
    });
  }
  return out;
}

}  // namespace weft
