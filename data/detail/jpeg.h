// JPEG by libjpeg-turbo: the header first, then only the pixels that are wanted.
#pragma once

#include "data/detail/crop.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::data::detail {

// The size of a stored picture and how it is to be shown.
struct StoredImage {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;  // of the file: 1, 2 (grey, alpha), 3 or 4
  int orientation = 1;   // EXIF
};

// Decoded pixels: the first `stride * height` bytes of a buffer hold them, those of (x, y) in the
// stored picture's pixels of 1/scale come first.
struct DecodedBox {
  PixelBox box;
  int64_t stride = 0;  // bytes from row to row
  int64_t scale = 1;   // a pixel here stands for scale × scale of the file
};

// One thread's decoder, used again for file after file.
class JpegReader {
 public:
  JpegReader();
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads the header. `bytes` must stay until read() has returned. Throws an Error with `name` and
  // byte where it is none, has more than `max_pixels`, or does not reach the end of the image.
  StoredImage open(std::span<const std::byte> bytes, const std::string& name, int64_t max_pixels);

  // Decodes at least `box` of the opened file in `channels` (1 or 3), at 1/`scale` (1, 2, 4 or 8),
  // into `pixels`. Pixels are those of decoding the whole file. Throws where the data in or before
  // the box are damaged.
  DecodedBox read(const PixelBox& box, int64_t scale, int64_t channels,
                  std::vector<uint8_t>& pixels);

 private:
  struct State;
  [[noreturn]] void fail() const;
  std::unique_ptr<State> state_;
};

}  // namespace weft::data::detail
