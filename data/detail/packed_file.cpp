#include "data/detail/packed_file.h"

#include "core/crc32c.h"
#include "core/error.h"
#include "data/detail/names.h"

#include <bit>
#include <cstring>

namespace weft::data::detail {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so is this code");

constexpr const char* kMagic = "WEFTPACK";
constexpr uint32_t kVersion = 1;
constexpr size_t kCrcAt = 12;
constexpr uint32_t kLongest = 1 << 15;  // pixels a side

// One field of the header after the other.
class Fields {
 public:
  explicit Fields(std::byte* at) : at_(at) {}
  template <class T>
  void put(T value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  template <class T>
  void get(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
  }

 private:
  std::byte* at_;
};

uint32_t header_crc(std::array<std::byte, kPackedHeader> header) {
  std::memset(header.data() + kCrcAt, 0, 4);
  return crc32c(header.data(), header.size());
}

}  // namespace

std::array<std::byte, kPackedHeader> packed_header(const PackedHeader& header) {
  std::array<std::byte, kPackedHeader> bytes{};
  std::memcpy(bytes.data(), kMagic, 8);
  Fields fields(bytes.data() + 8);
  fields.put(kVersion);
  fields.put(uint32_t{0});
  fields.put(header.images);
  fields.put(header.height);
  fields.put(header.width);
  fields.put(header.channels);
  fields.put(header.classes);
  fields.put(header.names_bytes);
  fields.put(header.tables_crc);
  const uint32_t crc = header_crc(bytes);
  std::memcpy(bytes.data() + kCrcAt, &crc, sizeof crc);
  return bytes;
}

PackedParts parse_packed(std::span<const std::byte> bytes, const std::string& name) {
  WEFT_CHECK(bytes.size() >= kPackedPage && std::memcmp(bytes.data(), kMagic, 8) == 0, kPacked,
             name, ": expected a file of packed images, got ", bytes.size(),
             " bytes of another kind");
  std::array<std::byte, kPackedHeader> raw;
  std::memcpy(raw.data(), bytes.data(), raw.size());
  PackedParts parts;
  PackedHeader& header = parts.header;
  uint32_t version = 0;
  uint32_t crc = 0;
  Fields fields(raw.data() + 8);
  fields.get(version);
  fields.get(crc);
  WEFT_CHECK(version == kVersion, kPacked, name, ": expected version ", kVersion, ", got ",
             version);
  WEFT_CHECK(crc == header_crc(raw), kPacked, name,
             ": expected a header with its checksum, got a damaged one");
  fields.get(header.images);
  fields.get(header.height);
  fields.get(header.width);
  fields.get(header.channels);
  fields.get(header.classes);
  fields.get(header.names_bytes);
  fields.get(header.tables_crc);
  WEFT_CHECK(header.height >= 1 && header.height <= kLongest && header.width >= 1 &&
                 header.width <= kLongest && (header.channels == 1 || header.channels == 3),
             kPacked, name, ": expected images of 1 or 3 channels and up to ", kLongest,
             " pixels a side, got ", header.channels, " × ", header.height, " × ", header.width);
  const uint64_t left = bytes.size() - kPackedPage;
  const uint64_t each = header.image_bytes() + 8;  // with its label and checksum
  WEFT_CHECK(header.images >= 1 && header.names_bytes <= left && header.images <= left / each &&
                 header.images * each + header.names_bytes == left,
             kPacked, name, ": expected ", header.images, " images of ", header.image_bytes(),
             " bytes and ", header.names_bytes, " bytes of names, got a file of ", bytes.size(),
             " bytes");
  const auto pixel_bytes = static_cast<size_t>(header.images * header.image_bytes());
  parts.pixels = bytes.subspan(kPackedPage, pixel_bytes);
  const auto tables = bytes.subspan(kPackedPage + pixel_bytes);
  WEFT_CHECK(crc32c(tables.data(), tables.size()) == header.tables_crc, kPacked, name,
             ": expected tables with their checksum, got damaged ones");
  const auto names_bytes = static_cast<size_t>(header.names_bytes);
  const auto images = static_cast<size_t>(header.images);
  parts.classes =
      split_names(kPacked, name, {reinterpret_cast<const char*>(tables.data()), names_bytes});
  WEFT_CHECK(parts.classes.size() == header.classes, kPacked, name, ": expected ", header.classes,
             " names of classes, got ", parts.classes.size());
  parts.labels.resize(images);
  std::memcpy(parts.labels.data(), tables.data() + names_bytes, 4 * images);
  parts.checksums.resize(images);
  std::memcpy(parts.checksums.data(), tables.data() + names_bytes + 4 * images, 4 * images);
  for (size_t i = 0; i < images; ++i) {
    WEFT_CHECK(parts.labels[i] >= 0 && static_cast<uint32_t>(parts.labels[i]) < header.classes,
               kPacked, name, ": expected labels in [0, ", header.classes, "), got ",
               parts.labels[i], " for image ", i);
  }
  return parts;
}

}  // namespace weft::data::detail
