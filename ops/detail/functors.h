// Elementwise functions and their gradients, written once for every device.
// Length: one functor a row of elementwise.def; they are read as one table.
//
// A functor's fwd and bwd are templates over the value V: float or double on a GPU and in tests, a
// vector register of them on the CPU, int64 where the function keeps integers. 16-bit floats never
// come here: loads widen, stores narrow. Choices are written with where(c, a, b), never with `if`,
// so that vectors pass; conditions are joined with & and |.
//
// Unary: fwd(x), and bwd(g) or bwd(g, s), where `saves` says what s is: the input x or the output
// y. Binary: fwd(a, b); bwd_a and bwd_b take g and then those of a and b that `a_uses` and `b_uses`
// name; where that is `passes`, the gradient is g itself. A derivative at a kink is PyTorch's.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

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

template <class T>
requires std::is_floating_point_v<T> WEFT_HD T normal_cdf(T x, T /*bell*/) {
  return T(0.5) * std::erfc(x * T(-0.70710678118654752));
}

enum class Saves : uint8_t { nothing, input, output };
enum class Uses : uint8_t { passes, nothing, a, b, both };

// The element type of a vector register, or of a number (which is its own).
template <class V>
struct LaneOf {
  using type = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<V&>()[0])>>;
};
template <class V>
requires std::is_arithmetic_v<V>
struct LaneOf<V> {
  using type = V;
};
template <class V>
inline constexpr bool is_whole = std::is_integral_v<typename LaneOf<V>::type>;

template <class C, class V>
WEFT_HD V where(C condition, V a, V b) {
  return condition ? a : b;
}

// The number c as a V, whose lanes it fills.
template <class V, class N>
WEFT_HD V fill(N c) {
  return V{} + static_cast<typename LaneOf<V>::type>(c);
}
template <class V>
WEFT_HD V constant(double c) {
  return fill<V>(c);
}
// A bound of a whole V: the nearest int64 inwards, so that infinite bounds bind nothing.
template <class V>
WEFT_HD V lower_bound(double c) {
  if constexpr (is_whole<V>) {
    return c <= -0x1p63 ? fill<V>(INT64_MIN)
                        : (c >= 0x1p63 ? fill<V>(INT64_MAX) : fill<V>(std::ceil(c)));
  } else {
    return constant<V>(c);
  }
}
template <class V>
WEFT_HD V upper_bound(double c) {
  if constexpr (is_whole<V>) {
    return c <= -0x1p63 ? fill<V>(INT64_MIN)
                        : (c >= 0x1p63 ? fill<V>(INT64_MAX) : fill<V>(std::floor(c)));
  } else {
    return constant<V>(c);
  }
}

// A number beside a tensor, exact in either kind.
struct Number {
  double real;
  int64_t whole;
  template <class V>
  WEFT_HD V as() const {
    if constexpr (is_whole<V>) {
      return fill<V>(whole);
    } else {
      return fill<V>(real);
    }
  }
};

template <class V>
WEFT_HD V logistic(V x) {
  return constant<V>(1) / (constant<V>(1) + exp(-x));
}

// ---- unary, arithmetic ----

struct Neg {
  static constexpr Saves saves = Saves::nothing;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return -x;
  }
  template <class V>
  WEFT_HD V bwd(V g) const {
    return -g;
  }
};

struct Abs {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    if constexpr (is_whole<V>) {
      return where(x < constant<V>(0), -x, x);
    } else {
      return fabs(x);
    }
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return where(x > constant<V>(0), g, where(x < constant<V>(0), -g, constant<V>(0)));
  }
};

struct Square {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return x * x;
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return constant<V>(2) * g * x;
  }
};

struct Reciprocal {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return constant<V>(1) / x;
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return -g * y * y;
  }
};

struct Sqrt {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return sqrt(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return g / (y + y);
  }
};

struct Rsqrt {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return constant<V>(1) / sqrt(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return constant<V>(-0.5) * g * y * y * y;
  }
};

// Steps: flat wherever they have a derivative.
#define WEFT_STEP(Name, expression)                \
  struct Name {                                    \
    static constexpr Saves saves = Saves::nothing; \
    template <class V>                             \
    WEFT_HD V fwd(V x) const {                     \
      if constexpr (is_whole<V>) {                 \
        return x;                                  \
      } else {                                     \
        return expression;                         \
      }                                            \
    }                                              \
    template <class V>                             \
    WEFT_HD V bwd(V) const {                       \
      return constant<V>(0);                       \
    }                                              \
  };
WEFT_STEP(Floor, floor(x))
WEFT_STEP(Ceil, ceil(x))
WEFT_STEP(Round, rint(x))  // halves to even
#undef WEFT_STEP

struct Sign {
  static constexpr Saves saves = Saves::nothing;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return where(x > constant<V>(0), constant<V>(1),
                 where(x < constant<V>(0), constant<V>(-1), constant<V>(0)));
  }
  template <class V>
  WEFT_HD V bwd(V) const {
    return constant<V>(0);
  }
};

struct Clamp {
  static constexpr Saves saves = Saves::input;
  double lo, hi;
  template <class V>
  WEFT_HD V fwd(V x) const {
    const V low = lower_bound<V>(lo);
    const V high = upper_bound<V>(hi);
    const V raised = where(x < low, low, x);
    return where(raised > high, high, raised);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return where((x < constant<V>(lo)) | (x > constant<V>(hi)), constant<V>(0), g);
  }
};

// ---- unary, transcendental ----

struct Exp {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return exp(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return g * y;
  }
};

struct Expm1 {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return expm1(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return g * (y + constant<V>(1));
  }
};

struct Log {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return log(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return g / x;
  }
};

struct Log1p {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return log1p(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return g / (x + constant<V>(1));
  }
};

struct Sin {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return sin(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return g * cos(x);
  }
};

struct Cos {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return cos(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return -g * sin(x);
  }
};

struct Tanh {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return tanh(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return g * (constant<V>(1) - y * y);
  }
};

struct Erf {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return erf(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return g * constant<V>(1.1283791670955126) * exp(-x * x);
  }
};

// ---- unary, activations ----

struct Sigmoid {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return logistic(x);
  }
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return g * y * (constant<V>(1) - y);
  }
};

struct Relu {
  static constexpr Saves saves = Saves::output;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return where(x <= constant<V>(0), constant<V>(0), x);
  }  // NaN stays
  template <class V>
  WEFT_HD V bwd(V g, V y) const {
    return where(y <= constant<V>(0), constant<V>(0), g);
  }
};

struct LeakyRelu {
  static constexpr Saves saves = Saves::input;
  double slope;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return where(x > constant<V>(0), x, x * constant<V>(slope));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return where(x > constant<V>(0), g, g * constant<V>(slope));
  }
};

struct Elu {
  static constexpr Saves saves = Saves::input;
  double alpha;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return where(x > constant<V>(0), x, constant<V>(alpha) * expm1(x));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    return where(x > constant<V>(0), g, g * constant<V>(alpha) * exp(x));
  }
};

// x Φ(x), Φ the standard normal distribution's function: Hendrycks and Gimpel, "Gaussian error
// linear units" (2016), §2.
struct Gelu {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V bell(V x) const {
    return exp(constant<V>(-0.5) * x * x);
  }
  template <class V>
  WEFT_HD V fwd(V x) const {
    return x * normal_cdf(x, bell(x));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    const V density = constant<V>(0.39894228040143268) * bell(x);
    return g * (normal_cdf(x, bell(x)) + x * density);
  }
};

// The same paper's approximation: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))).
struct GeluTanh {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V inner(V x) const {
    return constant<V>(0.79788456080286536) * (x + constant<V>(0.044715) * x * x * x);
  }
  template <class V>
  WEFT_HD V fwd(V x) const {
    return constant<V>(0.5) * x * (constant<V>(1) + tanh(inner(x)));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    const V t = tanh(inner(x));
    const V slope =
        constant<V>(0.79788456080286536) * (constant<V>(1) + constant<V>(0.134145) * x * x);
    return g * constant<V>(0.5) * (constant<V>(1) + t + x * (constant<V>(1) - t * t) * slope);
  }
};

struct Silu {
  static constexpr Saves saves = Saves::input;
  template <class V>
  WEFT_HD V fwd(V x) const {
    return x / (constant<V>(1) + exp(-x));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    const V s = logistic(x);
    return g * s * (constant<V>(1) + x * (constant<V>(1) - s));
  }
};

// log(1 + e^(beta x)) / beta; x itself once beta x passes the threshold.
struct Softplus {
  static constexpr Saves saves = Saves::input;
  double beta, threshold;
  template <class V>
  WEFT_HD V fwd(V x) const {
    const V scaled = x * constant<V>(beta);
    return where(scaled > constant<V>(threshold), x, log1p(exp(scaled)) / constant<V>(beta));
  }
  template <class V>
  WEFT_HD V bwd(V g, V x) const {
    const V scaled = x * constant<V>(beta);
    return where(scaled > constant<V>(threshold), g, g * logistic(scaled));
  }
};

// ---- binary ----

struct Add {
  static constexpr Uses a_uses = Uses::passes, b_uses = Uses::passes;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return a + b;
  }
};

struct Sub {
  static constexpr Uses a_uses = Uses::passes, b_uses = Uses::nothing;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return a - b;
  }
  template <class V>
  WEFT_HD V bwd_b(V g) const {
    return -g;
  }
};

struct Mul {
  static constexpr Uses a_uses = Uses::b, b_uses = Uses::a;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return a * b;
  }
  template <class V>
  WEFT_HD V bwd_a(V g, V b) const {
    return g * b;
  }
  template <class V>
  WEFT_HD V bwd_b(V g, V a) const {
    return g * a;
  }
};

struct Div {
  static constexpr Uses a_uses = Uses::b, b_uses = Uses::both;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return a / b;
  }
  template <class V>
  WEFT_HD V bwd_a(V g, V b) const {
    return g / b;
  }
  template <class V>
  WEFT_HD V bwd_b(V g, V a, V b) const {
    return -g * ((a / b) / b);
  }
};

// Whole powers of whole numbers wrap; a negative exponent gives the truncated 0 or ±1.
struct Pow {
  static constexpr Uses a_uses = Uses::both, b_uses = Uses::both;
  WEFT_HD static int64_t whole_power(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : (base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0);
    uint64_t result = 1;
    for (auto square = static_cast<uint64_t>(base); exponent > 0;
         exponent >>= 1, square *= square) {
      if (exponent & 1) result *= square;
    }
    return static_cast<int64_t>(result);
  }
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    if constexpr (!is_whole<V>) {
      return pow(a, b);
    } else if constexpr (std::is_arithmetic_v<V>) {
      return whole_power(a, b);
    } else {
      for (size_t i = 0; i < sizeof(V) / sizeof(int64_t); ++i)
        a[i] = whole_power(a[i], b[i]);
      return a;
    }
  }
  // b a^(b-1), and a^b log a with 0 where a = 0 and b >= 0: limits that the formulas alone would
  // make NaN.
  template <class V>
  WEFT_HD V bwd_a(V g, V a, V b) const {
    return where(b == constant<V>(0), constant<V>(0), g * b * pow(a, b - constant<V>(1)));
  }
  template <class V>
  WEFT_HD V bwd_b(V g, V a, V b) const {
    return where((a == constant<V>(0)) & (b >= constant<V>(0)), constant<V>(0),
                 g * pow(a, b) * log(a));
  }
};

// NaN wins; equal arguments share the gradient.
struct Maximum {
  static constexpr Uses a_uses = Uses::both, b_uses = Uses::both;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return where((a > b) | (a != a), a, b);
  }
  template <class V>
  WEFT_HD V bwd_a(V g, V a, V b) const {
    return where(a < b, constant<V>(0), where(a == b, g * constant<V>(0.5), g));
  }
  template <class V>
  WEFT_HD V bwd_b(V g, V a, V b) const {
    return bwd_a(g, b, a);
  }
};

struct Minimum {
  static constexpr Uses a_uses = Uses::both, b_uses = Uses::both;
  template <class V>
  WEFT_HD V fwd(V a, V b) const {
    return where((a < b) | (a != a), a, b);
  }
  template <class V>
  WEFT_HD V bwd_a(V g, V a, V b) const {
    return where(a > b, constant<V>(0), where(a == b, g * constant<V>(0.5), g));
  }
  template <class V>
  WEFT_HD V bwd_b(V g, V a, V b) const {
    return bwd_a(g, b, a);
  }
};

// ---- comparisons and logic: 1 where true, 0 elsewhere; no gradient ----

#define WEFT_CONDITION(Name, parameters, condition)            \
  struct Name {                                                \
    template <class V>                                         \
    WEFT_HD V fwd parameters const {                           \
      return where(condition, constant<V>(1), constant<V>(0)); \
    }                                                          \
  };
WEFT_CONDITION(Equal, (V a, V b), a == b)
WEFT_CONDITION(NotEqual, (V a, V b), a != b)
WEFT_CONDITION(Less, (V a, V b), a < b)
WEFT_CONDITION(LessEqual, (V a, V b), a <= b)
WEFT_CONDITION(Greater, (V a, V b), a > b)
WEFT_CONDITION(GreaterEqual, (V a, V b), a >= b)
WEFT_CONDITION(And, (V a, V b), (a != constant<V>(0)) & (b != constant<V>(0)))
WEFT_CONDITION(Or, (V a, V b), (a != constant<V>(0)) | (b != constant<V>(0)))
WEFT_CONDITION(Xor, (V a, V b), (a != constant<V>(0)) ^ (b != constant<V>(0)))
WEFT_CONDITION(Not, (V a), a == constant<V>(0))
WEFT_CONDITION(IsNan, (V a), a != a)
WEFT_CONDITION(IsFinite, (V a), a - a == constant<V>(0))
WEFT_CONDITION(IsInf, (V a), (a == a) & (a - a != constant<V>(0)))
#undef WEFT_CONDITION

}  // namespace weft::functors
