// Elementary functions of vector registers, accurate to about two units in the last place in f32
// and f64, with IEEE's results at NaN, infinities and zeros. A lane's result depends on that lane
// alone.
//
// The methods are the textbook ones (J.-M. Muller, "Elementary Functions", 3rd ed., ch. 11):
// reduction of the argument to a short interval, a polynomial there, reconstruction. Where a Taylor
// series is short enough it is used, so that its coefficients explain themselves.
#pragma once

#include "ops/detail/packet_value.h"

#include <array>
#include <cmath>
#include <limits>

namespace weft::functors {

template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = Packet<uint32_t>;
  static constexpr int mantissa = 23;
  static constexpr uint32_t bias = 127;
  static constexpr uint32_t sign = 0x80000000u;
  static constexpr uint32_t one = 0x3f800000u, sqrt_half = 0x3f3504f3u;
  static constexpr float magic = 0x1.8p23f;  // adding it rounds to an integer, held in the low bits
  static constexpr float ln2_high = 0x1.63p-1f,
                         ln2_low = -0x1.bd0106p-13f;  // high times an exponent is exact
  static constexpr int exp_terms = 7, log_terms = 5;
};
template <>
struct Format<double> {
  using Bits = Packet<uint64_t>;
  static constexpr int mantissa = 52;
  static constexpr uint64_t bias = 1023;
  static constexpr uint64_t sign = 0x8000000000000000u;
  static constexpr uint64_t one = 0x3ff0000000000000u, sqrt_half = 0x3fe6a09e667f3bcdu;
  static constexpr double magic = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr int exp_terms = 13, log_terms = 11;
};

template <class T>
inline Packet<T> magnitude(Packet<T> x) {
  using Bits = typename Format<T>::Bits;
  return bits_as<Packet<T>>(bits_as<Bits>(x) & ~Format<T>::sign);
}
template <class T>
inline Packet<T> with_sign_of(Packet<T> x, Packet<T> from) {
  using Bits = typename Format<T>::Bits;
  return bits_as<Packet<T>>((bits_as<Bits>(x) & ~Format<T>::sign) |
                            (bits_as<Bits>(from) & Format<T>::sign));
}
// Nearest integer for |x| < 2^22 (float) or 2^51 (double).
template <class T>
inline Packet<T> nearest(Packet<T> x) {
  return (x + Format<T>::magic) - Format<T>::magic;
}
// 2^n for an integer n within the exponents of normal numbers.
template <class T>
inline Packet<T> power_of_two(Packet<T> n) {
  using F = Format<T>;
  return bits_as<Packet<T>>((bits_as<typename F::Bits>(n + F::magic) << F::mantissa) + F::one);
}

// c[0] + c[1] x + c[2] x² + …
template <class T, size_t N>
inline Packet<T> polynomial(Packet<T> x, const std::array<T, N>& c) {
  Packet<T> sum = broadcast(c[N - 1]);
  for (size_t i = N - 1; i-- > 0;)
    sum = multiply_add<T>(sum, x, broadcast(c[i]));
  return sum;
}

// 1/2!, 1/3!, …: (e^r - 1 - r) / r².
template <class T, size_t N>
constexpr std::array<T, N> exp_coefficients() {
  std::array<T, N> c{};
  double factorial = 1;
  for (size_t i = 0; i < N; ++i) {
    factorial *= static_cast<double>(i + 2);
    c[i] = static_cast<T>(1 / factorial);
  }
  return c;
}
// x = n ln 2 + r with |r| <= ln 2 / 2.
template <class T>
struct ExpReduced {
  Packet<T> n, expm1_r;
};
template <class T>
inline ExpReduced<T> reduce_exp(Packet<T> x) {
  using F = Format<T>;
  static constexpr auto c = exp_coefficients<T, static_cast<size_t>(F::exp_terms) - 1>();
  const Packet<T> n = nearest<T>(x * static_cast<T>(0x1.71547652b82fep+0));
  Packet<T> r = multiply_add<T>(n, broadcast(-F::ln2_high), x);
  r = multiply_add<T>(n, broadcast(-F::ln2_low), r);
  return {n, multiply_add<T>(r * r, polynomial<T>(r, c), r)};
}

template <class T>
inline Packet<T> exp_packet(Packet<T> x) {
  constexpr T highest = sizeof(T) == 4 ? T(89) : T(710);    // past overflow
  constexpr T lowest = sizeof(T) == 4 ? T(-104) : T(-746);  // past the smallest subnormal
  x = x > highest ? broadcast(highest) : x;                 // NaN stays
  x = x < lowest ? broadcast(lowest) : x;
  const auto [n, p] = reduce_exp<T>(x);
  const Packet<T> half =
      nearest<T>(n * T(0.5));  // 2^n in two steps: it may lie outside the normal numbers
  return (p + T(1)) * power_of_two<T>(half) * power_of_two<T>(n - half);
}

// 2^n expm1(r) + 2^n - 1.
template <class T>
inline Packet<T> expm1_packet(Packet<T> x) {
  constexpr T highest = sizeof(T) == 4 ? T(89) : T(710);
  const Packet<T> tiny = x;
  x = x > highest ? broadcast(highest) : x;
  x = x < T(-40) ? broadcast(T(-40)) : x;
  const auto [n, p] = reduce_exp<T>(x);
  const Packet<T> half_scale =
      power_of_two<T>(n - T(1));  // 2^n itself may overflow before the result does
  const Packet<T> result = multiply_add<T>(half_scale, p, half_scale - T(0.5)) * T(2);
  constexpr T epsilon = std::numeric_limits<T>::epsilon() / 4;
  return magnitude<T>(tiny) < epsilon ? tiny : result;  // keeps -0 and subnormals
}

// 2/3, 2/5, …: (log((1+s)/(1-s)) - 2s) / s³ in powers of s².
template <class T, size_t N>
constexpr std::array<T, N> log_coefficients() {
  std::array<T, N> c{};
  for (size_t i = 0; i < N; ++i)
    c[i] = static_cast<T>(2.0 / static_cast<double>(2 * i + 3));
  return c;
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = 2 atanh(s), s = f / (2 + f),
// arranged so that f itself enters exactly. `low` is a small addend that joins before the last
// rounding.
template <class T>
inline Packet<T> log_packet(Packet<T> x, Packet<T> low = Packet<T>{}) {
  using F = Format<T>;
  using Bits = typename F::Bits;
  static constexpr auto c = log_coefficients<T, static_cast<size_t>(F::log_terms)>();
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const auto subnormal = x < std::numeric_limits<T>::min();
  const T lift = static_cast<T>(uint64_t{1} << F::mantissa);
  const Packet<T> lifted = subnormal ? x * lift : x;
  const Bits shifted = bits_as<Bits>(lifted) + (F::one - F::sqrt_half);
  const Bits fraction = (shifted & (((Bits{} + 1) << F::mantissa) - 1)) + F::sqrt_half;
  // An integer's bits below 2^mantissa, put into that number's own mantissa, convert it to floating
  // point.
  const Packet<T> biased =
      bits_as<Packet<T>>((shifted >> F::mantissa) | bits_as<Bits>(broadcast(lift)));
  Packet<T> e = biased - (lift + static_cast<T>(F::bias));
  e = subnormal ? e - static_cast<T>(F::mantissa) : e;
  const Packet<T> f = bits_as<Packet<T>>(fraction) - T(1);
  const Packet<T> s = f / (f + T(2));
  const Packet<T> z = s * s;
  const Packet<T> half_square = f * f * T(0.5);
  const Packet<T> series = s * multiply_add<T>(z, polynomial<T>(z, c), half_square);
  const Packet<T> tail = multiply_add<T>(e, broadcast(F::ln2_low), series + low);
  const Packet<T> result = multiply_add<T>(e, broadcast(F::ln2_high), f - (half_square - tail));
  const Packet<T> invalid = broadcast(std::numeric_limits<T>::quiet_NaN());
  const Packet<T> special = x == T(0) ? broadcast(-infinity) : (x == infinity ? x : invalid);
  const auto regular = (x > T(0)) & (x < infinity);
  return regular ? result : special;
}

// log(u) for u = 1 + x rounded, mended by what rounding lost: (x - (u - 1)) / u.
template <class T>
inline Packet<T> log1p_packet(Packet<T> x) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const Packet<T> u = x + T(1);
  const Packet<T> lost = x > T(1) ? T(1) - (u - x) : x - (u - T(1));
  const auto regular = (u > T(0)) & (u < infinity);
  const Packet<T> mend = regular ? lost / u : Packet<T>{};
  const Packet<T> result = log_packet<T>(u, mend);
  return magnitude<T>(x) < std::numeric_limits<T>::epsilon() / 4 ? x : result;
}

// tanh|x| = t / (t + 2), t = expm1(2|x|).
template <class T>
inline Packet<T> tanh_packet(Packet<T> x) {
  Packet<T> a = magnitude<T>(x);
  a = a > T(20) ? broadcast(T(20)) : a;  // 1 to the last bit
  const Packet<T> t = expm1_packet<T>(a * T(2));
  return with_sign_of<T>(t / (t + T(2)), x);
}

// Below 1: x times a polynomial in x²; up to 4: 1 - exp(-q), q a polynomial; beyond: 1. Both
// polynomials interpolate at Chebyshev nodes, the first erf(x)/x - 1, the second -log(erfc(x))
// about x = 2.5.
inline Packet<float> erf(Packet<float> x) {
  static constexpr std::array<float, 8> near = {
      0.128379167f,    -0.3761263847f,    0.112837825f,     -0.02686543073f,
      0.005221031808f, -0.0008484080406f, 0.0001126595903f, -9.667044571e-6f};
  static constexpr std::array<float, 9> far = {
      7.806815273f,     5.352680674f,     0.9438937036f,  0.01085854164f,  -0.002165303549f,
      0.0004201225235f, -7.729137615e-5f, 1.33150144e-5f, -1.637151415e-6f};
  Packet<float> a = magnitude<float>(x);
  a = a > 4.0f ? broadcast(4.0f) : a;
  const Packet<float> small = multiply_add<float>(x, polynomial<float>(x * x, near), x);
  const Packet<float> large = 1.0f - exp_packet<float>(-polynomial<float>(a - 2.5f, far));
  return a < 1.0f ? small : with_sign_of<float>(large, x);
}
inline Packet<double> erf(Packet<double> x) {
  return by_lane<double>(x, [](double v) { return std::erf(v); });
}

// The standard normal distribution's function: the share of it below x. `bell` is exp(-x²/2), which
// whoever needs its density has already. For a = |x| the share beyond a is bell times a smooth
// function that falls from 1/2 towards 0: t times a polynomial in t = 1 / (1 + p a), after Hastings
// (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.2.17), with the relative error
// made small: 1e-7 for all a.
inline Packet<float> normal_cdf(Packet<float> x, Packet<float> bell) {
  static constexpr std::array<float, 8> share = {
      0.12163972854614258f,  0.12246684730052948f, 0.1034206748008728f,   0.1210223138332367f,
      -0.03797804564237595f, 0.18571822345256805f, -0.15298907458782196f, 0.03669937327504158f};
  const Packet<float> t =
      1.0f / multiply_add<float>(magnitude<float>(x), broadcast(0.305f), broadcast(1.0f));
  const Packet<float> beyond = bell * (t * polynomial<float>(t, share));
  return x < 0.0f ? beyond : 1.0f - beyond;
}
inline Packet<double> normal_cdf(Packet<double> x, Packet<double>) {
  return by_lane<double>(x, [](double v) { return 0.5 * std::erfc(v * -0.70710678118654752); });
}

// Sine (shift 0) or cosine (shift 1) of floats, in double: x = k pi/2 + r with |r| <= pi/4, then a
// Taylor series.
inline Packet<double> sin_reduced(Packet<double> x, uint64_t shift) {
  static constexpr std::array<double, 6> sine = {1,           -1.0 / 6,     1.0 / 120,
                                                 -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  static constexpr std::array<double, 7> cosine = {
      1, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};
  using Bits = Format<double>::Bits;
  const Packet<double> shifted = x * 0x1.45f306dc9c883p-1 + Format<double>::magic;  // 2/pi
  const Packet<double> k = shifted - Format<double>::magic;
  Packet<double> r =
      multiply_add<double>(k, broadcast(-0x1.921fb544p+0), x);  // 33 bits of pi/2, then the next
  r = multiply_add<double>(k, broadcast(-0x1.0b4611a626331p-34), r);
  const Bits quadrant = bits_as<Bits>(shifted) + shift;
  const Packet<double> z = r * r;
  const Packet<double> value =
      (quadrant & 1) == 0 ? r * polynomial<double>(z, sine) : polynomial<double>(z, cosine);
  return bits_as<Packet<double>>(bits_as<Bits>(value) ^ ((quadrant & 2) << 62));
}
template <class F>
inline Packet<float> sin_packet(Packet<float> x, uint64_t shift, F exact) {
  const Halves wide = widen(x);
  Packet<float> result = narrow({sin_reduced(wide.low, shift), sin_reduced(wide.high, shift)});
  for (int64_t i = 0; i < kLanes<float>; ++i) {
    if (!(std::fabs(x[i]) < 1e6f)) result[i] = exact(x[i]);  // the reduction holds 20 bits of k
  }
  return result;
}
inline Packet<float> sin(Packet<float> x) {
  return sin_packet(x, 0, [](float v) { return std::sin(v); });
}
inline Packet<float> cos(Packet<float> x) {
  return sin_packet(x, 1, [](float v) { return std::cos(v); });
}
inline Packet<double> sin(Packet<double> x) {
  return by_lane<double>(x, [](double v) { return std::sin(v); });
}
inline Packet<double> cos(Packet<double> x) {
  return by_lane<double>(x, [](double v) { return std::cos(v); });
}

#define WEFT_PACKET_FUNCTION(name, call)         \
  inline Packet<float> name(Packet<float> x) {   \
    return call<float>(x);                       \
  }                                              \
  inline Packet<double> name(Packet<double> x) { \
    return call<double>(x);                      \
  }
WEFT_PACKET_FUNCTION(exp, exp_packet)
WEFT_PACKET_FUNCTION(expm1, expm1_packet)
WEFT_PACKET_FUNCTION(log, log_packet)
WEFT_PACKET_FUNCTION(log1p, log1p_packet)
WEFT_PACKET_FUNCTION(tanh, tanh_packet)
WEFT_PACKET_FUNCTION(fabs, magnitude)
#undef WEFT_PACKET_FUNCTION

// Powers: of positive floats by way of double, exp(y log x); all else lane by lane. Small whole
// exponents, the common ones, are products.
inline Packet<float> pow_positive(Packet<float> x, Packet<float> y) {
  const Halves a = widen(x);
  const Halves b = widen(y);
  return narrow({exp(b.low * log(a.low)), exp(b.high * log(a.high))});
}
inline Packet<double> pow_positive(Packet<double> x, Packet<double> y) {
  for (int64_t i = 0; i < kLanes<double>; ++i)
    x[i] = std::pow(x[i], y[i]);
  return x;
}
template <class T>
inline Packet<T> pow_packet(Packet<T> x, Packet<T> y) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const auto one = y == T(1), square = y == T(2), cube = y == T(3), inverse = y == T(-1);
  const auto product = one | square | cube | inverse;
  const auto plain = (x > T(0)) & (x < infinity) & (y > -infinity) & (y < infinity);
  bool all_products = true, all_plain = true;
  for (int64_t i = 0; i < kLanes<T>; ++i) {
    all_products = all_products && product[i];
    all_plain = all_plain && (plain[i] || product[i]);
  }
  const Packet<T> short_power = one ? x : (square ? x * x : (cube ? x * x * x : T(1) / x));
  if (all_products) return short_power;
  Packet<T> result = pow_positive(x, y);
  if (!all_plain) {
    for (int64_t i = 0; i < kLanes<T>; ++i) {
      if (!plain[i]) result[i] = std::pow(x[i], y[i]);
    }
  }
  return product ? short_power : result;
}
inline Packet<float> pow(Packet<float> x, Packet<float> y) {
  return pow_packet<float>(x, y);
}
inline Packet<double> pow(Packet<double> x, Packet<double> y) {
  return pow_packet<double>(x, y);
}

}  // namespace weft::functors
