// Vector registers as values: the compiler's own vector type, on which + - * / < & ?: work as on
// numbers, as wide as the processor's registers. Here are the type and what the processor offers as
// one instruction; functions are in packet_math.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace weft::functors {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define WEFT_WIDE_REGISTERS 1
inline constexpr int kPacketBytes = 64;
#else
inline constexpr int kPacketBytes = 32;
#endif

template <class T>
struct PacketOf {
  typedef T type __attribute__((vector_size(kPacketBytes)));
};
template <class T>
using Packet = typename PacketOf<T>::type;
template <class T>
inline constexpr int64_t kLanes = kPacketBytes / static_cast<int64_t>(sizeof(T));

template <class T>
inline Packet<T> load_packet(const T* from) {
  Packet<T> packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
}

template <class T>
inline Packet<T> broadcast(T value) {
  return Packet<T>{} + value;
}

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Applies a function of numbers to each lane.
template <class T, class F>
inline Packet<T> by_lane(Packet<T> x, F function) {
  for (int64_t i = 0; i < kLanes<T>; ++i)
    x[i] = function(x[i]);
  return x;
}

// One rounding where the processor fuses, two where it does not: callers must bear either.
template <class T>
inline Packet<T> multiply_add(Packet<T> a, Packet<T> b, Packet<T> c) {
#if defined(WEFT_WIDE_REGISTERS)
  if constexpr (sizeof(T) == 4) {
    return _mm512_fmadd_ps(a, b, c);
  } else {
    return _mm512_fmadd_pd(a, b, c);
  }
#elif defined(__FMA__)
  if constexpr (sizeof(T) == 4) {
    return _mm256_fmadd_ps(a, b, c);
  } else {
    return _mm256_fmadd_pd(a, b, c);
  }
#else
  return a * b + c;
#endif
}

#if defined(WEFT_WIDE_REGISTERS)
#define WEFT_PACKET_INSTRUCTION(name, ps, pd)    \
  inline Packet<float> name(Packet<float> x) {   \
    return _mm512_##ps;                          \
  }                                              \
  inline Packet<double> name(Packet<double> x) { \
    return _mm512_##pd;                          \
  }
#define WEFT_PACKET_ROUNDING(name, way)                                      \
  WEFT_PACKET_INSTRUCTION(name, roundscale_ps(x, (way) | _MM_FROUND_NO_EXC), \
                          roundscale_pd(x, (way) | _MM_FROUND_NO_EXC))
WEFT_PACKET_INSTRUCTION(sqrt, sqrt_ps(x), sqrt_pd(x))
WEFT_PACKET_ROUNDING(floor, _MM_FROUND_TO_NEG_INF)
WEFT_PACKET_ROUNDING(ceil, _MM_FROUND_TO_POS_INF)
WEFT_PACKET_ROUNDING(rint, _MM_FROUND_TO_NEAREST_INT)
#undef WEFT_PACKET_ROUNDING
#undef WEFT_PACKET_INSTRUCTION
#elif defined(__AVX__)
#define WEFT_PACKET_INSTRUCTION(name, ps, pd)    \
  inline Packet<float> name(Packet<float> x) {   \
    return _mm256_##ps;                          \
  }                                              \
  inline Packet<double> name(Packet<double> x) { \
    return _mm256_##pd;                          \
  }
WEFT_PACKET_INSTRUCTION(sqrt, sqrt_ps(x), sqrt_pd(x))
WEFT_PACKET_INSTRUCTION(floor, floor_ps(x), floor_pd(x))
WEFT_PACKET_INSTRUCTION(ceil, ceil_ps(x), ceil_pd(x))
WEFT_PACKET_INSTRUCTION(rint, round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                        round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#undef WEFT_PACKET_INSTRUCTION
#else
#define WEFT_PACKET_INSTRUCTION(name)                                 \
  inline Packet<float> name(Packet<float> x) {                        \
    return by_lane<float>(x, [](float v) { return std::name(v); });   \
  }                                                                   \
  inline Packet<double> name(Packet<double> x) {                      \
    return by_lane<double>(x, [](double v) { return std::name(v); }); \
  }
WEFT_PACKET_INSTRUCTION(sqrt)
WEFT_PACKET_INSTRUCTION(floor)
WEFT_PACKET_INSTRUCTION(ceil)
WEFT_PACKET_INSTRUCTION(rint)
#undef WEFT_PACKET_INSTRUCTION
#endif

// A float packet as two of double, and back (rounded to nearest even).
struct Halves {
  Packet<double> low, high;
};
typedef float HalfPacket __attribute__((vector_size(kPacketBytes / 2)));
inline Halves widen(Packet<float> x) {
  HalfPacket half[2];
  std::memcpy(half, &x, sizeof x);
  return {__builtin_convertvector(half[0], Packet<double>),
          __builtin_convertvector(half[1], Packet<double>)};
}
inline Packet<float> narrow(const Halves& x) {
  const HalfPacket half[2] = {__builtin_convertvector(x.low, HalfPacket),
                              __builtin_convertvector(x.high, HalfPacket)};
  Packet<float> packet;
  std::memcpy(&packet, half, sizeof packet);
  return packet;
}

}  // namespace weft::functors
