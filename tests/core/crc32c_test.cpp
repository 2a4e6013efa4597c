// CRC32C against published values and against itself: both ways, any cut, any alignment.
#include "core/crc32c.h"

#include "core/detail/crc32c.h"
#include "core/random.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

namespace weft::test {
namespace {

using Crc = uint32_t (*)(const void*, size_t, uint32_t);

// "tables" is what processors without SSE 4.2 use.
std::vector<std::pair<const char*, Crc>> ways() {
  std::vector<std::pair<const char*, Crc>> ways = {{"crc32c", crc32c},
                                                   {"tables", detail::crc32c_tables}};
#ifdef __SSE4_2__
  ways.emplace_back("sse42", detail::crc32c_sse42);
#endif
  return ways;
}

std::vector<uint8_t> random_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<uint8_t>(random_bits({5}, i));
  return bytes;
}

// One bit at a time, by the definition.
uint32_t by_definition(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST(Crc32c, GivesThePublishedValues) {
  for (const auto& [name, crc] : ways()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(crc("", 0, 0), 0u);
    EXPECT_EQ(crc("123456789", 9, 0), 0xe3069283u);
    // RFC 3720, B.4
    std::vector<uint8_t> bytes(32, 0);
    EXPECT_EQ(crc(bytes.data(), 32, 0), 0x8a9136aau);
    bytes.assign(32, 0xff);
    EXPECT_EQ(crc(bytes.data(), 32, 0), 0x62a8ab43u);
    std::iota(bytes.begin(), bytes.end(), uint8_t{0});
    EXPECT_EQ(crc(bytes.data(), 32, 0), 0x46dd794eu);
    std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
    EXPECT_EQ(crc(bytes.data(), 32, 0), 0x113fdb5cu);
    const std::vector<uint8_t> read_command = {
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
        0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    EXPECT_EQ(crc(read_command.data(), read_command.size(), 0), 0xd9963a56u);
  }
}

TEST(Crc32c, IsItsDefinitionAtAnyLengthAndAlignment) {
  const std::vector<uint8_t> bytes = random_bytes(60'000);
  for (const size_t count : {1, 7, 8, 9, 255, 767, 768, 769, 800, 24'575, 24'576, 24'577, 50'003}) {
    for (const size_t first : {0, 1, 5}) {
      const std::vector<uint8_t> part(bytes.begin() + static_cast<ptrdiff_t>(first),
                                      bytes.begin() + static_cast<ptrdiff_t>(first + count));
      const uint32_t expected = by_definition(part);
      for (const auto& [name, crc] : ways())
        EXPECT_EQ(crc(bytes.data() + first, count, 0), expected) << name << ' ' << count;
    }
  }
}

TEST(Crc32c, ContinuesAndCombinesAtAnyCut) {
  const std::vector<uint8_t> bytes = random_bytes(30'000);
  const uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (const size_t cut : {0, 1, 3, 8, 100, 10'000, 24'576, 29'999, 30'000}) {
    const uint32_t head = crc32c(bytes.data(), cut);
    const uint32_t tail = crc32c(bytes.data() + cut, bytes.size() - cut);
    for (const auto& [name, crc] : ways())
      EXPECT_EQ(crc(bytes.data() + cut, bytes.size() - cut, head), whole) << name << ' ' << cut;
    EXPECT_EQ(crc32c_combine(head, tail, bytes.size() - cut), whole) << cut;
  }
}

TEST(Crc32c, CombinesLengthsThatNoMemoryHolds) {
  // Appending zero bytes twice is appending the sum of both.
  const uint32_t crc = crc32c("weft", 4);
  const uint64_t third = (uint64_t{1} << 62) / 3;
  uint32_t in_parts = crc;
  for (int i = 0; i < 3; ++i)
    in_parts = crc32c_combine(in_parts, 0, third);
  EXPECT_EQ(crc32c_combine(crc, 0, 3 * third), in_parts);
}

}  // namespace
}  // namespace weft::test
