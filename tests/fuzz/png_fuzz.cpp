// Any bytes, as they are and, so that most do not end at the first checksum, with the checksums of
// their chunks made right: see image_fuzz.h.
#include "tests/fuzz/image_fuzz.h"

#include <zlib.h>

#include <cstddef>
#include <cstdint>

namespace {

void mend_checksums(std::vector<std::byte>& bytes) {
  const auto integer = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i)
      value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
    return value;
  };
  size_t at = 8;
  while (bytes.size() >= at + 12) {
    const uint32_t length = integer(at);
    if (length > bytes.size() - at - 12) return;
    const auto crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(&bytes[at + 4]), length + 4));
    for (size_t i = 0; i < 4; ++i)
      bytes[at + 8 + length + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  weft::fuzz::decode_everything({bytes, size});
  std::vector<std::byte> mended(bytes, bytes + size);
  mend_checksums(mended);
  weft::fuzz::decode_everything(mended);
  return 0;
}
