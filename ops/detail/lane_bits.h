// A bit for each element of a row of channels: what a kernel keeps of a comparison, a 32nd of the
// numbers themselves. A row has a byte for each packet of channels, the last one may be partly
// used.
#pragma once

#include "ops/detail/lanes.h"

namespace weft::detail {

// Bytes of a row.
template <class T>
inline constexpr int64_t bit_pitch(int64_t channels) {
  return (channels + kLanes<T> - 1) / kLanes<T>;
}

// Writes the truth of `test`, a comparison of V, for the lanes from channel c on. Single elements
// come after whole packets, in ascending order (for_lanes).
template <class V, class Test>
inline void store_bits(uint8_t* row, int64_t c, Test test) {
  if constexpr (std::is_arithmetic_v<V>) {
    const int64_t lane = c % kLanes<V>;
    const auto bit = static_cast<unsigned>(test) << lane;
    uint8_t& byte = row[c / kLanes<V>];
    byte = static_cast<uint8_t>(lane == 0 ? bit : byte | bit);
  } else {
    using T = std::remove_cvref_t<decltype(V{}[0])>;
#if defined(__AVX__)
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
    row[c / kLanes<T>] = static_cast<uint8_t>(bits);
  }
}

// The way back: what can stand before `? :` with Vs.
template <class V>
inline auto load_bits(const uint8_t* row, int64_t c) {
  if constexpr (std::is_arithmetic_v<V>) {
    return (row[c / kLanes<V>] >> (c % kLanes<V>)&1) != 0;
  } else {
    using T = std::remove_cvref_t<decltype(V{}[0])>;
    using Bits = Packet<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;
    Bits lane{};
    for (int64_t i = 0; i < kLanes<T>; ++i)
      lane[i] = 1 << i;
    return (broadcast<Bits>(row[c / kLanes<T>]) & lane) != 0;
  }
}

}  // namespace weft::detail
