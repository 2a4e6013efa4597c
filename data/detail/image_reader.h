// Bytes of an image file to the pixels that a sample shows.
#pragma once

#include "data/detail/jpeg.h"
#include "data/detail/orientation.h"
#include "data/detail/png.h"
#include "data/detail/resample.h"

namespace weft::data::detail {

// One thread's, used again for file after file.
class ImageReader {
 public:
  // What the file says it is, by its first bytes, never by its name. As it is to be shown: turned
  // as EXIF says. Throws an Error that names `name`.
  StoredImage open(std::span<const std::byte> bytes, const std::string& name, int64_t max_pixels);

  // Pixels for a cut of the opened image, shown with at least so many pixels, of `channels` 1 or 3:
  // only what the cut needs is decoded, and of a JPEG at the largest of the scales 1, 1/2, 1/4, 1/8
  // that still has them. Valid until the next call. Throws where the data are damaged.
  PixelView read(const Cut& cut, int64_t height, int64_t width, int64_t channels);

 private:
  JpegReader jpeg_;
  PngReader png_;
  bool is_jpeg_ = false;
  StoredImage shown_;
  Orientation orientation_;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> turned_;
};

}  // namespace weft::data::detail
