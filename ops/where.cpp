#include "ops/where.h"

#include "core/profiler.h"
#include "ops/detail/elementwise.h"

namespace weft {
namespace {

using detail::Domain;

struct Choose {
  template <class V>
  V operator()(V condition, V a, V b) const {
    return functors::where(condition != functors::constant<V>(0), a, b);
  }
};
// The gradient of a (keep = 1) or of b (keep = 0): g where that one was chosen.
struct ChooseGradient {
  double keep;
  template <class V>
  V operator()(V g, V condition) const {
    return functors::where((condition != functors::constant<V>(0)) ==
                               (functors::constant<V>(keep) != functors::constant<V>(0)),
                           g, functors::constant<V>(0));
  }
};

void check_mask(const char* op, const Tensor& mask) {
  detail::check_defined(op, mask);
  WEFT_CHECK(mask.dtype() == boolean, op, "expected a mask of bool, got ", mask.dtype());
}

Tensor choose(const char* name, const Tensor& condition, const Tensor& a, const Tensor& b,
              DType dtype) {
  const Shape shape =
      broadcast_shapes(broadcast_shapes(a.shape(), b.shape(), name), condition.shape(), name);
  const std::array<const Tensor*, 3> list{&a, &b, &condition};
  Tensor out = detail::elementwise_output(shape, dtype, list);
  detail::apply<Choose, Domain::any>(out, dtype, {}, condition, a, b);
  if (recording(a, b)) {
    record(name, out, inputs(a, b),
           [name, condition = Saved(condition), a_shape = a.shape(), b_shape = b.shape(),
            a_dtype = a.dtype(), b_dtype = b.dtype()](const Tensor& g, Gradients& to) {
             const auto one = [&](size_t input, double keep, const Shape& to_shape,
                                  DType to_dtype) {
               if (!to.wants(input)) return;
               const Tensor d = empty_like(g);
               detail::apply<ChooseGradient, Domain::real>(d, g.dtype(), {keep}, g,
                                                           condition.get(name));
               to.set(input, detail::to_input(d, to_shape, to_dtype));
             };
             one(0, 1, a_shape, a_dtype);
             one(1, 0, b_shape, b_dtype);
           });
  }
  return out;
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const ProfileOp profile("where");
  check_mask("where", condition);
  detail::check_defined("where", a);
  detail::check_defined("where", b);
  return choose("where", condition, a, b, promote(a.dtype(), b.dtype()));
}

Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  const ProfileOp profile("where");
  check_mask("where", condition);
  detail::check_defined("where", a);
  const DType dtype = promote(a.dtype(), b);
  return choose("where", condition, a, detail::scalar_operand(b, dtype), dtype);
}

Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  const ProfileOp profile("where");
  check_mask("where", condition);
  detail::check_defined("where", b);
  const DType dtype = promote(b.dtype(), a);
  return choose("where", condition, detail::scalar_operand(a, dtype), b, dtype);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  const ProfileOp profile("masked_fill");
  check_mask("masked_fill", mask);
  detail::check_defined("masked_fill", x);
  WEFT_CHECK(broadcast_shapes(x.shape(), mask.shape(), "masked_fill") == x.shape(), "masked_fill",
             "expected a mask that broadcasts to ", x.shape(), ", got ", mask.shape());
  return choose("masked_fill", mask, detail::scalar_operand(value, x.dtype()), x, x.dtype());
}

}  // namespace weft
