// Single image files: JPEG and PNG, told by their content.
//
// Grey, colour (also stored as RGB), CMYK and YCCK JPEGs, baseline and progressive; PNGs of 1 to 16
// bits, grey, palette and colour, interlaced or not. What comes out is 8 bits a channel, turned as
// EXIF says. 16 bits are rounded; alpha is dropped, as Pillow's convert("RGB") does; inks become
// (1 - ink)(1 - black), inverted first where the file has Adobe's marker; grey from colours is
// 0.299 R + 0.587 G + 0.114 B; gamma and colour profiles are left alone.
#pragma once

#include "core/tensor.h"

#include <span>
#include <string>
#include <vector>

namespace weft::data {

// Images of more pixels are refused before memory is taken for them.
inline constexpr int64_t kMaxPixels = int64_t{1} << 27;

struct ImageInfo {
  int64_t height = 0;  // as shown
  int64_t width = 0;
  int64_t channels = 0;  // in the file: 1 grey, 2 grey and alpha, 3 colours, 4 inks or alpha
  int orientation = 1;   // EXIF's, 1 … 8
};

// From the header; also throws where the file ends before the image does. Errors name `name` and,
// where there is one, the byte.
ImageInfo image_info(std::span<const std::byte> bytes, const std::string& name,
                     int64_t max_pixels = kMaxPixels);

// The whole image: u8 [channels, H, W], stored H, W, C; channels 1 or 3. Throws where it is
// damaged: lost pixels, not what decoders can step over.
Tensor decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t channels = 3,
                    int64_t max_pixels = kMaxPixels);

// u8 [C, H, W], C 1 or 3, to a baseline JPEG of quality 1 … 100, colours at half resolution
// (4:2:0).
std::vector<std::byte> encode_jpeg(const Tensor& image, int quality = 90);

}  // namespace weft::data
