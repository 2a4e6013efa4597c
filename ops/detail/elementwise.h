// How a row of elementwise.def becomes an operator: checks, output, kernel, gradient.
#pragma once

#include "autograd/record.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/functors.h"
#include "ops/detail/packet.h"

#include <array>

namespace weft::detail {

using functors::Saves;

enum class Domain { real, any };

// The functor's members as callables, so that packet_kernel need not know their names.
#define WEFT_MEMBER(Name, member)   \
  template <class F>                \
  struct Name {                     \
    F f;                            \
    template <class... V>           \
    auto operator()(V... v) const { \
      return f.member(v...);        \
    }                               \
  };
WEFT_MEMBER(Forward, fwd)
WEFT_MEMBER(Backward, bwd)
WEFT_MEMBER(BackwardA, bwd_a)
WEFT_MEMBER(BackwardB, bwd_b)
#undef WEFT_MEMBER

// The kernel of callable C with `Arity` inputs for a compute dtype; i64 only where the function
// keeps integers.
template <class C, int Arity, Domain domain>
BlockKernel kernel_for(DType compute) {
  if (compute == DType::f32) return packet_kernel<C, float, Arity>;
  if (compute == DType::f64) return packet_kernel<C, double, Arity>;
  if constexpr (domain == Domain::any) return packet_kernel<C, int64_t, Arity>;
  return nullptr;
}

template <class C, Domain domain, class... Inputs>
void apply(const Tensor& out, DType dtype, const C& callable, const Inputs&... inputs) {
  const std::array<const Tensor*, sizeof...(Inputs)> list{&inputs...};
  const DType compute = compute_dtype(dtype);
  run_loop(out, list, compute, kernel_for<C, sizeof...(Inputs), domain>(compute), &callable);
}

// The result dtype of a unary function.
inline DType unary_dtype(DType dtype, Domain domain) {
  return domain == Domain::real && !is_floating(dtype) ? f32 : dtype;
}

void check_defined(const char* op, const Tensor& tensor);
void check_floating(const char* op, const Tensor& tensor);
void check_same_device(const char* op, const Tensor& a, const Tensor& b);
// `target` can hold the result of an in-place operator.
void check_result(const char* op, const Tensor& target, const Shape& shape, DType dtype);
// The gradient of a broadcast, promoted input: summed to its shape, converted to its dtype.
Tensor to_input(Tensor gradient, const Shape& shape, DType dtype);
// A 0-dim tensor holding the number, wide enough for `tensor op scalar` to compute in.
Tensor scalar_operand(const Scalar& scalar, DType result);

template <Domain domain, class F>
void record_unary(const char* name, const Tensor& out, std::array<Edge, 1> edges, const Tensor& x,
                  const F& f) {
  if constexpr (F::saves == Saves::nothing) {
    record(name, out, std::move(edges), [f](const Tensor& g, Gradients& to) {
      const Tensor dx = empty_like(g);
      apply<Backward<F>, Domain::real>(dx, g.dtype(), {f}, g);
      to.set(0, dx);
    });
  } else {
    const Saved saved = F::saves == Saves::input ? Saved(x) : Saved::output(out);
    record(name, out, std::move(edges), [f, name, saved](const Tensor& g, Gradients& to) {
      const Tensor& value = saved.get(name);
      const Tensor dx = empty_like(value, g.dtype());
      apply<Backward<F>, Domain::real>(dx, g.dtype(), {f}, g, value);
      to.set(0, dx);
    });
  }
}

template <Domain domain, class F>
Tensor unary(const char* name, const Tensor& x, const F& f) {
  const ProfileOp profile(name);
  check_defined(name, x);
  const DType dtype = unary_dtype(x.dtype(), domain);
  Tensor out = empty_like(x, dtype);
  apply<Forward<F>, domain>(out, dtype, {f}, x);
  if (recording(x)) record_unary<domain>(name, out, inputs(x), x, f);
  return out;
}

template <Domain domain, class F>
Tensor unary_in_place(const char* name, const Tensor& x, const F& f) {
  const ProfileOp profile(name);
  check_defined(name, x);
  check_result(name, x, x.shape(), unary_dtype(x.dtype(), domain));
  const bool is_recording = recording(x);
  check_in_place(name, x, is_recording);
  WEFT_CHECK(!is_recording || F::saves != Saves::input, name,
             "expected no recording, since the gradient needs the input that would be overwritten");
  std::array<Edge, 1> edges = inputs(x);
  apply<Forward<F>, domain>(x, x.dtype(), {f}, x);
  x.bump_version();
  if (is_recording) record_unary<domain>(name, x, std::move(edges), x, f);
  return x;
}

// One input's gradient of a binary function: `Member` applied to g and to what it uses of a and b.
template <functors::Uses uses, class Member>
Tensor binary_gradient(const Tensor& g, const Member& member, const Saved& a, const Saved& b,
                       const char* name) {
  using functors::Uses;
  if constexpr (uses == Uses::passes) {
    return g;
  } else {
    const Tensor d = empty_like(g);
    if constexpr (uses == Uses::nothing) apply<Member, Domain::real>(d, g.dtype(), member, g);
    if constexpr (uses == Uses::a)
      apply<Member, Domain::real>(d, g.dtype(), member, g, a.get(name));
    if constexpr (uses == Uses::b)
      apply<Member, Domain::real>(d, g.dtype(), member, g, b.get(name));
    if constexpr (uses == Uses::both)
      apply<Member, Domain::real>(d, g.dtype(), member, g, a.get(name), b.get(name));
    return d;
  }
}

template <class F>
constexpr bool binary_uses(functors::Uses operand) {
  return F::a_uses == operand || F::b_uses == operand || F::a_uses == functors::Uses::both ||
         F::b_uses == functors::Uses::both;
}
// Whether the gradient needs neither operand, so that the result may overwrite one.
template <class F>
inline constexpr bool saves_nothing =
    !binary_uses<F>(functors::Uses::a) && !binary_uses<F>(functors::Uses::b);

template <class F>
void record_binary(const char* name, const Tensor& out, std::array<Edge, 2> edges, const Tensor& a,
                   const Tensor& b, const F& f) {
  const Saved saved_a(binary_uses<F>(functors::Uses::a) ? a : Tensor());
  const Saved saved_b(binary_uses<F>(functors::Uses::b) ? b : Tensor());
  record(
      name, out, std::move(edges),
      [name, f, saved_a, saved_b, a_shape = a.shape(), b_shape = b.shape(), a_dtype = a.dtype(),
       b_dtype = b.dtype()](const Tensor& g, Gradients& to) {
        if (to.wants(0)) {
          to.set(0, to_input(binary_gradient<F::a_uses>(g, BackwardA<F>{f}, saved_a, saved_b, name),
                             a_shape, a_dtype));
        }
        if (to.wants(1)) {
          to.set(1, to_input(binary_gradient<F::b_uses>(g, BackwardB<F>{f}, saved_a, saved_b, name),
                             b_shape, b_dtype));
        }
      });
}

template <Domain domain, class F>
Tensor binary(const char* name, const Tensor& a, const Tensor& b, DType dtype, const F& f) {
  const ProfileOp profile(name);
  const std::array<const Tensor*, 2> list{&a, &b};
  Tensor out = elementwise_output(broadcast_shapes(a.shape(), b.shape(), name), dtype, list);
  apply<Forward<F>, domain>(out, dtype, {f}, a, b);
  if (recording(a, b)) record_binary(name, out, inputs(a, b), a, b, f);
  return out;
}

inline DType binary_dtype(DType promoted, Domain domain) {
  return unary_dtype(promoted, domain);
}

template <Domain domain, class F>
Tensor binary(const char* name, const Tensor& a, const Tensor& b, const F& f) {
  check_defined(name, a);
  check_defined(name, b);
  check_same_device(name, a, b);
  return binary<domain>(name, a, b, binary_dtype(promote(a.dtype(), b.dtype()), domain), f);
}

// What an operator in place may read while it writes `target`: `input` itself, or a copy where the
// two share memory otherwise than element by element, and so some would be read after they were
// written.
inline Tensor apart(const Tensor& target, const Tensor& input) {
  if (input.storage() != target.storage()) return input;
  const bool same = input.raw() == target.raw() && input.shape() == target.shape() &&
                    input.strides() == target.strides();
  return same ? input : clone(input.detach());
}

template <Domain domain, class F>
Tensor binary_in_place(const char* name, const Tensor& a, const Tensor& b, DType dtype,
                       const F& f) {
  const ProfileOp profile(name);
  check_result(name, a, broadcast_shapes(a.shape(), b.shape(), name), dtype);
  const bool is_recording = recording(a, b);
  check_in_place(name, a, is_recording);
  WEFT_CHECK(!is_recording || saves_nothing<F>, name,
             "expected no recording, since the gradient needs the input that would be overwritten");
  std::array<Edge, 2> edges = inputs(a, b);
  apply<Forward<F>, domain>(a, dtype, {f}, a, apart(a, b));
  a.bump_version();
  if (is_recording) record_binary(name, a, std::move(edges), a, b, f);
  return a;
}

// Predicates and comparisons compute in the (promoted) dtype and store bool.
template <class F>
Tensor predicate(const char* name, const Tensor& x, const F& f) {
  const ProfileOp profile(name);
  check_defined(name, x);
  Tensor out = empty_like(x, boolean);
  apply<Forward<F>, Domain::any>(out, x.dtype(), {f}, x);
  return out;
}

template <class F>
Tensor compare(const char* name, const Tensor& a, const Tensor& b, DType promoted, const F& f) {
  const ProfileOp profile(name);
  const std::array<const Tensor*, 2> list{&a, &b};
  Tensor out = elementwise_output(broadcast_shapes(a.shape(), b.shape(), name), boolean, list);
  apply<Forward<F>, Domain::any>(out, promoted, {f}, a, b);
  return out;
}

}  // namespace weft::detail
