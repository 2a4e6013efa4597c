// The parts of a packed file; packed.h describes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::data::detail {

inline constexpr const char* kPacked = "packed";  // the operation that errors name
inline constexpr size_t kPackedPage = 4096;
inline constexpr size_t kPackedHeader = 64;

struct PackedHeader {
  uint64_t images = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 0;
  uint32_t classes = 0;
  uint64_t names_bytes = 0;
  uint32_t tables_crc = 0;

  uint64_t image_bytes() const { return uint64_t{height} * width * channels; }
};

std::array<std::byte, kPackedHeader> packed_header(const PackedHeader& header);

// What a whole file holds.
struct PackedParts {
  PackedHeader header;
  std::span<const std::byte> pixels;
  std::vector<std::string> classes;
  std::vector<int32_t> labels;
  std::vector<uint32_t> checksums;
};

// Every size is checked against the file's before memory is taken. Throws an Error that names
// `name`.
PackedParts parse_packed(std::span<const std::byte> bytes, const std::string& name);

}  // namespace weft::data::detail
