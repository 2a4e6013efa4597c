#include "core/crc32c.h"

#include "core/detail/crc32c.h"

#ifdef __SSE4_2__
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cstring>

namespace weft {
namespace {

// Polynomials over GF(2) modulo the CRC's, of degree below 32, bit 31 being the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78;
constexpr uint32_t kOne = uint32_t{1} << 31;

constexpr uint32_t times_x(uint32_t a) {
  return (a >> 1) ^ (a & 1 ? kPolynomial : 0);
}

constexpr uint32_t times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = times_x(b);
  }
  return product;
}

// x^(2^k) for k = 0 … 66: enough for the bits of any length.
constexpr auto kSquares = [] {
  std::array<uint32_t, 67> squares{};
  squares[0] = times_x(kOne);
  for (size_t k = 1; k < squares.size(); ++k)
    squares[k] = times(squares[k - 1], squares[k - 1]);
  return squares;
}();

// x^(n 2^k)
constexpr uint32_t power(uint64_t n, size_t k) {
  uint32_t result = kOne;
  for (; n != 0; n >>= 1, ++k) {
    if (n & 1) result = times(kSquares[k], result);
  }
  return result;
}

// kTables[k][b]: what byte b does to the CRC of the k bytes after it.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = times_x(crc);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

uint64_t word_at(const std::byte* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

}  // namespace

namespace detail {

// Eight bytes at a time by eight tables (Kounavis & Berry 2008, "slicing by 8").
uint32_t crc32c_tables(const void* bytes, size_t count, uint32_t before) {
  const auto* at = static_cast<const std::byte*>(bytes);
  uint32_t crc = ~before;
  for (; count >= 8; at += 8, count -= 8) {
    const uint64_t word = word_at(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k)
      crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; count > 0; ++at, --count)
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*at)) & 0xff];
  return ~crc;
}

#ifdef __SSE4_2__

namespace {

// The CRC register `crc` after kBytes zero bytes.
template <uint64_t kBytes>
uint32_t moved_by(uint32_t crc) {
#ifdef __PCLMUL__
  // The instruction's product of two reflected numbers is theirs times x, and the CRC of a 64-bit
  // word is the word times x^32.
  constexpr uint32_t factor = power(kBytes * 8 - 33, 0);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(crc)),
                                               _mm_cvtsi32_si128(static_cast<int>(factor)), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
#else
  return times(power(kBytes, 3), crc);
#endif
}

// The instruction takes three cycles and can begin every cycle: three runs of bytes side by side
// keep it busy (Gopal et al. 2011, "Fast CRC computation for iSCSI polynomial using CRC32
// instruction", Intel).
template <uint64_t kRun>
void three_runs(const std::byte*& at, size_t& count, uint64_t& crc) {
  while (count >= 3 * kRun) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kRun; i += 8) {
      crc = _mm_crc32_u64(crc, word_at(at + i));
      second = _mm_crc32_u64(second, word_at(at + kRun + i));
      third = _mm_crc32_u64(third, word_at(at + 2 * kRun + i));
    }
    crc = moved_by<2 * kRun>(static_cast<uint32_t>(crc)) ^
          moved_by<kRun>(static_cast<uint32_t>(second)) ^ third;
    at += 3 * kRun;
    count -= 3 * kRun;
  }
}

}  // namespace

uint32_t crc32c_sse42(const void* bytes, size_t count, uint32_t before) {
  const auto* at = static_cast<const std::byte*>(bytes);
  uint64_t crc = static_cast<uint32_t>(~before);
  three_runs<8192>(at, count, crc);
  three_runs<256>(at, count, crc);
  for (; count >= 8; at += 8, count -= 8)
    crc = _mm_crc32_u64(crc, word_at(at));
  auto narrow = static_cast<uint32_t>(crc);
  for (; count > 0; ++at, --count)
    narrow = _mm_crc32_u8(narrow, std::to_integer<uint8_t>(*at));
  return ~narrow;
}

#endif

}  // namespace detail

uint32_t crc32c(const void* bytes, size_t count, uint32_t before) {
#ifdef __SSE4_2__
  return detail::crc32c_sse42(bytes, count, before);
#else
  return detail::crc32c_tables(bytes, count, before);
#endif
}

uint32_t crc32c_combine(uint32_t a, uint32_t b, uint64_t b_bytes) {
  return times(power(b_bytes, 3), a) ^ b;
}

}  // namespace weft
