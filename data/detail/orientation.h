// The eight orientations of EXIF (Exif 2.32, §4.6.4, tag 274): how the picture lies in the file.
#pragma once

#include "data/detail/crop.h"

#include <cstddef>
#include <span>

namespace weft::data::detail {

// What is shown is the stored picture, its rows and columns exchanged if `transposed`, then
// mirrored.
struct Orientation {
  bool transposed = false;
  bool mirror_x = false;
  bool mirror_y = false;
};

// Of the value of the tag: 1 … 8; others count as 1.
Orientation orientation_of(int tag);

// The tag in a TIFF structure; 1 where it has none or is damaged: whoever writes nonsense there
// has not turned the picture.
int orientation_tag(std::span<const std::byte> tiff);

// A cut of the shown picture, which has so many pixels, as one of the stored picture.
Cut stored_cut(const Cut& shown, const Orientation& orientation, int64_t shown_width,
               int64_t shown_height);

// Exchanges rows and columns of interleaved pixels: to[x][y] = from[y][x].
void transpose(const uint8_t* from, int64_t stride, int64_t width, int64_t height, int64_t channels,
               uint8_t* to);

}  // namespace weft::data::detail
