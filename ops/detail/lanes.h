// Writing a kernel once for vector registers and for the few channels that are left over.
//
// The remainder runs the same operations one element at a time: without reassociation or
// contraction each gives the bits its lane would have given, so a channel's result does not depend
// on where in the row it lies.
#pragma once

#include "ops/detail/functors.h"

#include <cmath>

namespace weft::detail {

using functors::kLanes;
using functors::Packet;

template <class V>
inline V load(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
inline void store(void* to, V value) {
  std::memcpy(to, &value, sizeof value);
}

// All lanes hold `value`. Subtracting zero keeps every value, -0 too, so nothing but the broadcast
// remains.
template <class V, class T>
inline V broadcast(T value) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(value);
  } else {
    return static_cast<std::remove_cvref_t<decltype(V{}[0])>>(value) - V{};
  }
}

// a * b + c, rounded once where the build's processor can.
inline float fma(float a, float b, float c) {
#if defined(__FMA__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}
inline double fma(double a, double b, double c) {
#if defined(__FMA__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}
inline Packet<float> fma(Packet<float> a, Packet<float> b, Packet<float> c) {
  return functors::multiply_add<float>(a, b, c);
}
inline Packet<double> fma(Packet<double> a, Packet<double> b, Packet<double> c) {
  return functors::multiply_add<double>(a, b, c);
}

// Calls f.operator()<V>(i) for the elements [0, count): V is Packet<T> while whole packets are
// left, then T.
template <class T, class F>
inline void for_lanes(int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>)
    f.template operator()<Packet<T>>(i);
  for (; i < count; ++i)
    f.template operator()<T>(i);
}

}  // namespace weft::detail
