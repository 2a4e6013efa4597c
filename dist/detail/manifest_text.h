// Pieces of text that writing and reading a manifest share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::dist::detail {

// Lower case, with leading zeros.
std::string hex8(uint32_t value);
std::string hex16(uint64_t value);

// The last line: the CRC of the text before it, and the closing brace.
std::string manifest_tail(std::string_view body);
inline constexpr size_t kManifestTailBytes = 23;

}  // namespace weft::dist::detail
