// Vector registers as values: 32 bytes of the compiler's own vector type, on which + - * / < ?: work as on
// numbers. Functions such as exp come from Eigen's vectorised ones.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <unsupported/Eigen/SpecialFunctions>

namespace weft::functors {

template <class T>
struct PacketOf {
  typedef T type __attribute__((vector_size(32)));
};
template <class T>
using Packet = typename PacketOf<T>::type;
template <class T>
inline constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(T));

template <class T>
inline Packet<T> load_packet(const T* from) {
  Packet<T> packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
}

// Applies an Eigen array function to a packet.
template <class T, class F>
inline Packet<T> by_eigen(Packet<T> x, F function) {
  using Lanes = Eigen::Array<T, kLanes<T>, 1>;
  Lanes lanes;
  std::memcpy(lanes.data(), &x, sizeof x);
  const Lanes result = function(lanes);
  std::memcpy(&x, result.data(), sizeof x);
  return x;
}

#define WEFT_PACKET_FUNCTION(name, call)                                                                     \
  inline Packet<float> name(Packet<float> x) {                                                               \
    return by_eigen<float>(x, [](const auto& v) { return v.call(); });                                       \
  }                                                                                                          \
  inline Packet<double> name(Packet<double> x) {                                                             \
    return by_eigen<double>(x, [](const auto& v) { return v.call(); });                                      \
  }
WEFT_PACKET_FUNCTION(exp, exp)
WEFT_PACKET_FUNCTION(expm1, expm1)
WEFT_PACKET_FUNCTION(log, log)
WEFT_PACKET_FUNCTION(log1p, log1p)
WEFT_PACKET_FUNCTION(sqrt, sqrt)
WEFT_PACKET_FUNCTION(sin, sin)
WEFT_PACKET_FUNCTION(cos, cos)
WEFT_PACKET_FUNCTION(tanh, tanh)
WEFT_PACKET_FUNCTION(erf, erf)
WEFT_PACKET_FUNCTION(floor, floor)
WEFT_PACKET_FUNCTION(ceil, ceil)
WEFT_PACKET_FUNCTION(rint, rint)
WEFT_PACKET_FUNCTION(fabs, abs)
#undef WEFT_PACKET_FUNCTION

template <class T>
inline Packet<T> pow_packet(Packet<T> x, Packet<T> y) {
  for (int64_t i = 0; i < kLanes<T>; ++i) x[i] = std::pow(x[i], y[i]);
  return x;
}
inline Packet<float> pow(Packet<float> x, Packet<float> y) { return pow_packet<float>(x, y); }
inline Packet<double> pow(Packet<double> x, Packet<double> y) { return pow_packet<double>(x, y); }

}  // namespace weft::functors
