// A bit for each element of a row of channels: what a kernel keeps of a comparison, a 32nd of the
// numbers themselves. A row has a word for each packet of channels, the last one may be partly
// used.
#pragma once

#include "ops/detail/wide_lanes.h"

namespace weft::detail {

// The bits of one packet.
template <class T>
using LaneWord = std::conditional_t<(kLanes<T> > 8), uint16_t, uint8_t>;

// Bytes of a row.
template <class T>
inline constexpr int64_t bit_pitch(int64_t channels) {
  return (channels + kLanes<T> - 1) / kLanes<T> * static_cast<int64_t>(sizeof(LaneWord<T>));
}

// Where the word of channel c is.
template <class T, class Byte>
inline Byte* lane_word(Byte* row, int64_t c) {
  return row + c / kLanes<T> * static_cast<int64_t>(sizeof(LaneWord<T>));
}

// Writes the truth of `test`, a comparison of V, for the lanes from channel c on. Single elements
// come after whole packets, in ascending order (for_lanes).
template <class V, class Test>
inline void store_bits(uint8_t* row, int64_t c, Test test) {
  if constexpr (std::is_arithmetic_v<V>) {
    using Word = LaneWord<V>;
    uint8_t* at = lane_word<V>(row, c);
    const int64_t lane = c % kLanes<V>;
    const auto bit = static_cast<unsigned>(test) << lane;
    store(at, static_cast<Word>(lane == 0 ? bit : load<Word>(at) | bit));
  } else {
    using T = std::remove_cvref_t<decltype(V{}[0])>;
#if defined(WEFT_WIDE_REGISTERS)
    const auto lanes = functors::bits_as<__m512i>(test);
    LaneWord<T> bits;
    if constexpr (sizeof(T) == 4) {
      bits = _mm512_movepi32_mask(lanes);
    } else {
      bits = _mm512_movepi64_mask(lanes);
    }
#elif defined(__AVX__)
    const auto lanes = functors::bits_as<V>(test);
    int bits;
    if constexpr (sizeof(T) == 4) {
      bits = _mm256_movemask_ps(lanes);
    } else {
      bits = _mm256_movemask_pd(lanes);
    }
#else
    int bits = 0;
    for (int64_t i = 0; i < kLanes<T>; ++i)
      bits |= static_cast<int>(test[i] != 0) << i;
#endif
    store(lane_word<T>(row, c), static_cast<LaneWord<T>>(bits));
  }
}

// The way back: what can stand before `? :` with Vs.
template <class V>
inline auto load_bits(const uint8_t* row, int64_t c) {
  if constexpr (std::is_arithmetic_v<V>) {
    return (load<LaneWord<V>>(lane_word<V>(row, c)) >> (c % kLanes<V>)&1) != 0;
  } else {
    using T = std::remove_cvref_t<decltype(V{}[0])>;
    using Bits = Packet<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
    const auto word = load<LaneWord<T>>(lane_word<T>(row, c));
#if defined(WEFT_WIDE_REGISTERS)
    if constexpr (sizeof(T) == 4) return functors::bits_as<Bits>(_mm512_movm_epi32(word));
    if constexpr (sizeof(T) == 8) return functors::bits_as<Bits>(_mm512_movm_epi64(word));
#else
    Bits lane{};
    for (int64_t i = 0; i < kLanes<T>; ++i)
      lane[i] = 1 << i;
    return (broadcast<Bits>(word) & lane) != 0;
#endif
  }
}

// A packet's worth of 16-bit numbers, 0 where the bit of channel c and of those after it is set.
inline HalfLanes clear_halves(const uint8_t* row, int64_t c, HalfLanes numbers) {
  const auto word = load<LaneWord<float>>(lane_word<float>(row, c));
#if defined(WEFT_WIDE_REGISTERS)
  const auto kept = static_cast<__mmask16>(~word);
  return functors::bits_as<HalfLanes>(
      _mm256_maskz_mov_epi16(kept, functors::bits_as<__m256i>(numbers)));
#else
  const HalfLanes lane = {1, 2, 4, 8, 16, 32, 64, 128};
  return (broadcast<HalfLanes>(word) & lane) != 0 ? HalfLanes{} : numbers;
#endif
}

}  // namespace weft::detail
