// Lanes of a kernel that computes in f32 or f64 over elements of any floating dtype: loads widen,
// stores narrow (to nearest, even on ties), in registers. Packets and single elements give the same
// bits.
#pragma once

#include "core/dtype.h"
#include "ops/detail/lanes.h"

#include <type_traits>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace weft::detail {

// What elements of type S are computed in.
template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

typedef uint16_t HalfLanes __attribute__((vector_size(functors::kPacketBytes / 2)));
#if defined(WEFT_WIDE_REGISTERS)
inline __m256i load_halves(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
#elif defined(__AVX__)
inline __m128i load_halves(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
#endif

// V, a packet or an element of Compute<S>, from elements at `from`.
template <class V, class S>
inline V load_wide(const S* from) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(*from);
  } else if constexpr (std::is_same_v<S, BFloat16>) {
#if defined(WEFT_WIDE_REGISTERS)
    return functors::bits_as<V>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(from)), 16));
#elif defined(__AVX2__)
    return functors::bits_as<V>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(from)), 16));
#else
    const auto words = __builtin_convertvector(load<HalfLanes>(from), Packet<uint32_t>);
    return functors::bits_as<V>(words << 16);
#endif
  } else if constexpr (std::is_same_v<S, Float16>) {
#if defined(WEFT_WIDE_REGISTERS)
    return _mm512_cvtph_ps(load_halves(from));
#elif defined(__F16C__)
    return _mm256_cvtph_ps(load_halves(from));
#else
    V wide;
    for (int64_t i = 0; i < kLanes<float>; ++i)
      wide[i] = static_cast<float>(from[i]);
    return wide;
#endif
  } else {
    return load<V>(from);
  }
}

// A packet of floats as S would store it.
template <class S>
inline HalfLanes narrow_lanes(Packet<float> value) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    const auto words = functors::bits_as<Packet<uint32_t>>(value);
    const auto rounded = (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
    const auto quiet = (words >> 16) | 0x40u;  // rounding could carry a NaN away
    return __builtin_convertvector(value != value ? quiet : rounded, HalfLanes);
  } else {
    HalfLanes lanes;
#if defined(WEFT_WIDE_REGISTERS)
    const __m256i half = _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(&lanes, &half, sizeof lanes);
#elif defined(__F16C__)
    const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(&lanes, &half, sizeof lanes);
#else
    for (int64_t i = 0; i < kLanes<float>; ++i)
      lanes[i] = Float16(value[i]).bits;
#endif
    return lanes;
  }
}

// Stores a packet's worth of 16-bit numbers. With `Stream` it goes past the caches: for results
// that are larger than these, `to` being a multiple of its size. stream_fence() makes such stores
// visible.
template <bool Stream>
inline void store_halves(void* to, HalfLanes lanes) {
#if defined(WEFT_WIDE_REGISTERS)
  if constexpr (Stream) {
    __m256i half;
    std::memcpy(&half, &lanes, sizeof half);
    return _mm256_stream_si256(static_cast<__m256i*>(to), half);
  }
#elif defined(__AVX__)
  if constexpr (Stream) {
    __m128i half;
    std::memcpy(&half, &lanes, sizeof half);
    return _mm_stream_si128(static_cast<__m128i*>(to), half);
  }
#endif
  store(to, lanes);
}

// The way back from load_wide; `Stream` as above, for packets.
template <bool Stream = false, class S, class V>
inline void store_wide(S* to, V value) {
  if constexpr (std::is_arithmetic_v<V>) {
    *to = static_cast<S>(value);
  } else if constexpr (sizeof(S) == 2) {
    store_halves<Stream>(to, narrow_lanes<S>(value));
  } else {
#if defined(WEFT_WIDE_REGISTERS)
    if constexpr (Stream && sizeof(S) == 4) return _mm512_stream_ps(to, value);
    if constexpr (Stream && sizeof(S) == 8) return _mm512_stream_pd(to, value);
#elif defined(__AVX__)
    if constexpr (Stream && sizeof(S) == 4) return _mm256_stream_ps(to, value);
    if constexpr (Stream && sizeof(S) == 8) return _mm256_stream_pd(to, value);
#endif
    store(to, value);
  }
}

// f.operator()<S>() with the type of the elements of a floating dtype.
template <class F>
decltype(auto) dispatch_elements(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Float16>();
    default:
      return f.template operator()<float>();
  }
}

inline void stream_fence() {
#if defined(__AVX__)
  _mm_sfence();
#endif
}

}  // namespace weft::detail
