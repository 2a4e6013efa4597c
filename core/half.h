// The two 16-bit floating-point types: storage only. Arithmetic happens in f32: loads widen, stores
// narrow with round-to-nearest-even (IEEE 754-2019 §4.3.1).
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// bfloat16: the upper half of an IEEE binary32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((word >> 16) |
                                   0x40u);  // keep NaN a (quiet) NaN: rounding could carry it away
    } else {
      bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

inline Float16::Float16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above: infinity (65520 rounds up below)
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (magnitude <
             0x38800000u) {  // below 2^-14: subnormal; adding 0.5 lets the FPU round the tail away
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

inline Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude < 0x400u) {  // subnormal: magnitude * 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

}  // namespace weft
