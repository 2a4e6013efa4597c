// Any bytes, as they are and with the header's checksum made right, either parse as packed images
// or throw weft::Error.
#include "core/crc32c.h"
#include "core/error.h"
#include "data/detail/packed_file.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

void parse(std::span<const std::byte> bytes) {
  try {
    const auto parts = weft::data::detail::parse_packed(bytes, "fuzz");
    volatile uint64_t sum = 0;
    for (const std::byte byte : parts.pixels)
      sum = sum + std::to_integer<uint64_t>(byte);
    for (const int32_t label : parts.labels)
      sum = sum + parts.classes.at(static_cast<size_t>(label)).size();
    for (const uint32_t crc : parts.checksums)
      sum = sum + crc;
  } catch (const weft::Error&) {
  }
}

// The tables' checksum stands at byte 48, the header's own at 12; the pixels end where the header
// says.
void mend_checksums(std::vector<std::byte>& bytes) {
  using weft::data::detail::kPackedHeader;
  using weft::data::detail::kPackedPage;
  if (bytes.size() < kPackedPage) return;
  uint64_t images = 0;
  uint32_t sizes[3];
  std::memcpy(&images, &bytes[16], 8);
  std::memcpy(sizes, &bytes[24], 12);
  const uint64_t pixels = images * sizes[0] * sizes[1] * sizes[2];
  if (pixels <= bytes.size() - kPackedPage) {
    const size_t tables = kPackedPage + static_cast<size_t>(pixels);
    const uint32_t crc = weft::crc32c(bytes.data() + tables, bytes.size() - tables);
    std::memcpy(&bytes[48], &crc, 4);
  }
  std::memset(&bytes[12], 0, 4);
  const uint32_t crc = weft::crc32c(bytes.data(), kPackedHeader);
  std::memcpy(&bytes[12], &crc, 4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  parse({bytes, size});
  std::vector<std::byte> mended(bytes, bytes + size);
  mend_checksums(mended);
  parse(mended);
  return 0;
}
