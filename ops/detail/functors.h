// Elementwise functions and their gradients, written once for every device.
//
// A functor's fwd and bwd are templates over the value V: float or double on a GPU and in tests, a vector
// register of them on the CPU, int64 where the function keeps integers. 16-bit floats never come here: loads
// widen, stores narrow. Choices are written with where(c, a, b), never with `if`, so that vectors pass.
//
// `saves` says what bwd is given beside the gradient g: the input x, the output y, or nothing.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define WEFT_HD __host__ __device__
#else
#define WEFT_HD
#include "ops/detail/packet_math.h"  // before the functors: they find its overloads of exp, log, …
#endif

namespace weft::functors {

// The scalar overloads; those for vector registers are in ops/detail/packet_math.h.
using std::ceil;
using std::cos;
using std::erf;
using std::exp;
using std::expm1;
using std::fabs;
using std::floor;
using std::log;
using std::log1p;
using std::pow;
using std::rint;
using std::sin;
using std::sqrt;
using std::tanh;

enum class Saves : uint8_t { nothing, input, output };

template <class C, class V>
WEFT_HD V where(C condition, V a, V b) {
  return condition ? a : b;
}

// The number c as a V, whose lanes it fills.
template <class V>
WEFT_HD V constant(double c) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(c);
  } else {
    return V{} + static_cast<std::remove_cvref_t<decltype(V{}[0])>>(c);
  }
}

// ---- unary: fwd(x), bwd(g, saved) ----

struct Neg {
  static constexpr Saves saves = Saves::nothing;
  template <class V> WEFT_HD V fwd(V x) const { return -x; }
  template <class V> WEFT_HD V bwd(V g) const { return -g; }
};

struct Exp {
  static constexpr Saves saves = Saves::output;
  template <class V> WEFT_HD V fwd(V x) const { return exp(x); }
  template <class V> WEFT_HD V bwd(V g, V y) const { return g * y; }
};

struct Sigmoid {
  static constexpr Saves saves = Saves::output;
  template <class V> WEFT_HD V fwd(V x) const { return constant<V>(1) / (constant<V>(1) + exp(-x)); }
  template <class V> WEFT_HD V bwd(V g, V y) const { return g * y * (constant<V>(1) - y); }
};

struct Relu {
  static constexpr Saves saves = Saves::output;
  template <class V> WEFT_HD V fwd(V x) const { return where(x <= constant<V>(0), constant<V>(0), x); }  // NaN stays
  template <class V> WEFT_HD V bwd(V g, V y) const { return where(y > constant<V>(0), g, constant<V>(0)); }
};

struct LeakyRelu {
  static constexpr Saves saves = Saves::input;
  double slope;
  template <class V> WEFT_HD V fwd(V x) const { return where(x > constant<V>(0), x, x * constant<V>(slope)); }
  template <class V> WEFT_HD V bwd(V g, V x) const { return where(x > constant<V>(0), g, g * constant<V>(slope)); }
};

// ---- binary: fwd(a, b); bwd_a(g, a, b), bwd_b(g, a, b), or of g alone where `linear` ----

struct Add {
  static constexpr bool linear = true;
  template <class V> WEFT_HD V fwd(V a, V b) const { return a + b; }
  template <class V> WEFT_HD V bwd_a(V g) const { return g; }
  template <class V> WEFT_HD V bwd_b(V g) const { return g; }
};

struct Sub {
  static constexpr bool linear = true;
  template <class V> WEFT_HD V fwd(V a, V b) const { return a - b; }
  template <class V> WEFT_HD V bwd_a(V g) const { return g; }
  template <class V> WEFT_HD V bwd_b(V g) const { return -g; }
};

struct Mul {
  static constexpr bool linear = false;
  template <class V> WEFT_HD V fwd(V a, V b) const { return a * b; }
  template <class V> WEFT_HD V bwd_a(V g, V, V b) const { return g * b; }
  template <class V> WEFT_HD V bwd_b(V g, V a, V) const { return g * a; }
};

struct Div {
  static constexpr bool linear = false;
  template <class V> WEFT_HD V fwd(V a, V b) const { return a / b; }
  template <class V> WEFT_HD V bwd_a(V g, V, V b) const { return g / b; }
  template <class V> WEFT_HD V bwd_b(V g, V a, V b) const { return -g * a / (b * b); }
};

// ---- comparison: 1 where true, 0 elsewhere; no gradient ----

struct Less {
  template <class V> WEFT_HD V fwd(V a, V b) const { return where(a < b, constant<V>(1), constant<V>(0)); }
};

}  // namespace weft::functors
