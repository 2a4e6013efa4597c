// JPEG files, written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::data::detail {

// Interleaved pixels of 1 or 3 channels to a baseline JPEG, colours at half resolution.
std::vector<std::byte> write_jpeg(const uint8_t* pixels, int64_t width, int64_t height,
                                  int64_t channels, int quality);

}  // namespace weft::data::detail
