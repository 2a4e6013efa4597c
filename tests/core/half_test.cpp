// The 16-bit floats against definitions written with ldexp: all values, and rounding at every
// border.
#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

// A 16-bit float from its fields: IEEE 754-2019 §3.4.
double value_of(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

template <class Half>
struct Format;
template <>
struct Format<Float16> {
  static double value(uint16_t bits) { return value_of(bits, 5, 10); }
  static constexpr uint16_t infinity = 0x7c00;
};
template <>
struct Format<BFloat16> {
  static double value(uint16_t bits) { return value_of(bits, 8, 7); }
  static constexpr uint16_t infinity = 0x7f80;
};

template <class Half>
Half from_bits(uint16_t bits) {
  Half half;
  half.bits = bits;
  return half;
}

template <class Half>
class HalfTest : public testing::Test {};
using Halves = testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, WidensEveryValueExactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    const double expected = Format<TypeParam>::value(narrow);
    const auto wide = static_cast<float>(from_bits<TypeParam>(narrow));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide), expected) << bits;
      ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    }
  }
}

TYPED_TEST(HalfTest, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto wide = static_cast<float>(from_bits<TypeParam>(static_cast<uint16_t>(bits)));
    const TypeParam back(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Between each two neighbours: what lies below the middle goes down, above goes up, the middle goes
// to the even one.
TYPED_TEST(HalfTest, RoundsToNearestEven) {
  constexpr uint16_t infinity = Format<TypeParam>::infinity;
  for (int bits = 0; bits < infinity; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const double below = Format<TypeParam>::value(low);
    // Infinity rounds as if it were the next power of two.
    const double above = high == infinity
                             ? 2 * below - Format<TypeParam>::value(static_cast<uint16_t>(low - 1))
                             : Format<TypeParam>::value(high);
    const auto middle =
        static_cast<float>((below + above) / 2);  // exact: both formats are narrower than f32
    const uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(TypeParam(middle).bits, even) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, low) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, HUGE_VALF)).bits, high) << bits;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000) << bits;
    ASSERT_EQ(TypeParam(-std::nextafter(middle, HUGE_VALF)).bits, high | 0x8000) << bits;
  }
}

TYPED_TEST(HalfTest, FarBeyondTheRangeIsInfinityAndNanStaysNan) {
  constexpr uint16_t infinity = Format<TypeParam>::infinity;
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, infinity);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::infinity()).bits, infinity | 0x8000);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  // A NaN whose payload sits in the bits that are cut off must not turn into infinity.
  for (const uint32_t payload : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(payload)))))
        << payload;
  }
}

}  // namespace
}  // namespace weft
