// Sums and products; moments, norms and extremes are in the files beside this.
#include "ops/reduce.h"

#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/gradient.h"
#include "ops/detail/reducers.h"
#include "ops/elementwise.h"

namespace weft {

using namespace detail;

namespace {

DType sum_dtype(DType dtype) {
  return is_integral(dtype) ? i64 : dtype;
}

// g · prod / x, without dividing by zeros: with one zero among the values, only it has a gradient.
struct ProductGradient {
  template <class V>
  V operator()(V g, V x, V product_of_nonzero, V zeros) const {
    const V none = constant<V>(0);
    const V at_zero = where(zeros == constant<V>(1), product_of_nonzero, none);
    const V elsewhere = where(zeros == none, product_of_nonzero / x, none);
    return g * where(x == none, at_zero, elsewhere);
  }
};

}  // namespace

Tensor sum(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("sum");
  check_defined("sum", x);
  const DimSet set = dim_set("sum", x, dims);
  Tensor out =
      drop_dims(reduce<Numbers::any>(x, set, sum_dtype(x.dtype()), Plain<Adding>{}), set, keepdim);
  if (recording(x)) {
    record("sum", out, inputs(x), [shape = x.shape(), set](const Tensor& g, Gradients& to) {
      to.set(0, repeat_dims(g, shape, set));
    });
  }
  return out;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const ProfileOp profile("sum_to");
  check_defined("sum_to", x);
  if (x.shape() == shape) return x;
  const int extra = x.dims() - shape.dims();
  bool fits = extra >= 0;
  DimSet set = 0;
  for (int d = 0; fits && d < x.dims(); ++d) {
    const bool summed = d < extra || (shape[d - extra] == 1 && x.shape()[d] != 1);
    if (summed) set |= DimSet{1} << d;
    fits = summed || shape[d - extra] == x.shape()[d];
  }
  WEFT_CHECK(fits, "sum_to", "expected a shape that broadcasts to ", x.shape(), ", got ", shape);
  const DimSet leading = (DimSet{1} << extra) - 1;
  Tensor out = drop_dims(reduce<Numbers::any>(x, set, sum_dtype(x.dtype()), Plain<Adding>{}),
                         leading, false);
  if (recording(x)) {
    record("sum_to", out, inputs(x),
           [shape = x.shape(), set, leading](const Tensor& g, Gradients& to) {
             to.set(0, repeat_dims(restore_dims(g, shape, leading), shape, set));
           });
  }
  return out;
}

Tensor prod(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("prod");
  check_defined("prod", x);
  const DimSet set = dim_set("prod", x, dims);
  Tensor out = drop_dims(reduce<Numbers::any>(x, set, sum_dtype(x.dtype()), Plain<Multiplying>{}),
                         set, keepdim);
  if (recording(x)) {
    record("prod", out, inputs(x), [x = Saved(x), set](const Tensor& g, Gradients& to) {
      const Tensor& value = x.get("prod");
      const DType compute = compute_dtype(value.dtype());
      const Tensor product = reduce<Numbers::real>(value, set, compute, ProductOfNonzero{});
      const Tensor zeros = reduce<Numbers::real>(value, set, compute, CountZero{});
      const Tensor wide = restore_dims(g, value.shape(), set);
      to.set(0, gradient_like(value, ProductGradient{}, wide, value, product, zeros));
    });
  }
  return out;
}

Tensor mean(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("mean");
  check_floating("mean", x);
  const DimSet set = dim_set("mean", x, dims);
  const auto count = static_cast<double>(reduced_count(x, set));
  // Divided before it is narrowed: an f16 sum may overflow where the mean does not.
  const Tensor total = reduce<Numbers::real>(x, set, compute_dtype(x.dtype()), Plain<Adding>{});
  Tensor out = drop_dims(to(div(total, count), x.dtype()), set, keepdim);
  if (recording(x)) {
    record("mean", out, inputs(x), [shape = x.shape(), set, count](const Tensor& g, Gradients& to) {
      to.set(0, repeat_dims(div(g, count), shape, set));
    });
  }
  return out;
}

}  // namespace weft
