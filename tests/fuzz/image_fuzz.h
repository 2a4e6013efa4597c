// What the fuzzers of image files have in common.
#pragma once

#include "data/detail/image_reader.h"
#include "data/image_file.h"

#include <algorithm>
#include <vector>

namespace weft::fuzz {

// Decodes the whole and a part of it that the input itself chooses, grey or in colours. Any bytes
// either are an image or throw weft::Error; what is decoded is readable throughout.
inline void decode_everything(std::span<const std::byte> bytes) {
  constexpr int64_t kPixels = 1 << 16;
  const auto byte = [&](size_t from_end) {
    return bytes.size() > from_end ? std::to_integer<int64_t>(bytes[bytes.size() - 1 - from_end])
                                   : 0;
  };
  const int64_t channels = byte(0) % 2 == 0 ? 3 : 1;
  volatile double sum = 0;
  try {
    for (const double value :
         data::decode_image(bytes, "fuzz", channels, kPixels).to_vector<double>())
      sum = sum + value;
  } catch (const Error&) {
  }
  try {
    data::detail::ImageReader reader;
    const auto image = reader.open(bytes, "fuzz", kPixels);
    data::detail::PixelBox box;
    box.x = byte(1) % image.width;
    box.y = byte(2) % image.height;
    box.width = 1 + byte(3) % (image.width - box.x);
    box.height = 1 + byte(4) % (image.height - box.y);
    const data::detail::Cut cut{{static_cast<double>(box.x), static_cast<double>(box.y),
                                 static_cast<double>(box.width), static_cast<double>(box.height)},
                                box};
    const auto view = reader.read(cut, 1 + byte(5) % 8, 1 + byte(6) % 8, channels);
    std::vector<float> out(5 * 7 * 3);
    data::detail::ResampleScratch scratch;
    data::detail::resample(view, 5, 7, {}, scratch, out.data());
    for (int64_t i = 0; i < 5 * 7 * channels; ++i)
      sum = sum + static_cast<double>(out[static_cast<size_t>(i)]);
  } catch (const Error&) {
  }
}

}  // namespace weft::fuzz
