// The JSON header of a safetensors file: read with every bound checked, and written.
#pragma once

#include "core/safetensors.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::detail {

inline constexpr uint64_t kHeaderLimit = 100'000'000;  // the format's own bound
inline constexpr uint64_t kLengthBytes = 8;

// Where one tensor lies: [begin, end) counts from the first byte after the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = f32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of the text
  std::vector<std::pair<std::string, std::string>> metadata;
};

// The length that the first 8 bytes of a file of `file_bytes` announce, checked against that size
// and the limit.
uint64_t header_length(const std::byte* first_eight, uint64_t file_bytes, const std::string& file);

// Parses the header of `file`, which holds `data_bytes` after it. On return the tensors' names
// differ and their places cover those bytes exactly, without gap or overlap, each of the size its
// dtype and shape call for.
SafetensorsHeader parse_header(std::string_view text, uint64_t data_bytes, const std::string& file);

// Gives every tensor its place (begin, end): wider dtypes first.
void place(std::vector<SafetensorsEntry>& tensors);

// The first bytes of a file: length, JSON, and spaces up to a multiple of 64.
std::string file_head(const SafetensorsHeader& header, const std::string& file);

}  // namespace weft::detail
