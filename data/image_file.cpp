#include "data/image_file.h"

#include "data/detail/image_reader.h"
#include "data/detail/jpeg_writer.h"
#include "ops/copy.h"
#include "ops/view.h"

#include <cstring>

namespace weft::data {

ImageInfo image_info(std::span<const std::byte> bytes, const std::string& name,
                     int64_t max_pixels) {
  detail::ImageReader reader;
  const detail::StoredImage image = reader.open(bytes, name, max_pixels);
  return {image.height, image.width, image.channels, image.orientation};
}

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t channels,
                    int64_t max_pixels) {
  WEFT_CHECK(channels == 1 || channels == 3, "decode_image", "expected 1 or 3 channels, got ",
             channels);
  detail::ImageReader reader;
  const detail::StoredImage image = reader.open(bytes, name, max_pixels);
  const int64_t height = image.height;
  const int64_t width = image.width;
  const detail::Cut all{{0, 0, static_cast<double>(width), static_cast<double>(height)},
                        {0, 0, width, height}};
  const detail::PixelView view = reader.read(all, height, width, channels);
  const CategoryScope category(Category::data);
  const Tensor pixels = empty({height, width, channels}, {.dtype = u8});
  auto* to = pixels.data<uint8_t>();
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row = view.data + (view.mirror_y ? height - 1 - y : y) * view.stride;
    uint8_t* line = to + y * width * channels;
    if (!view.mirror_x) {
      std::memcpy(line, row, static_cast<size_t>(width * channels));
      continue;
    }
    for (int64_t x = 0; x < width; ++x)
      std::memcpy(line + x * channels, row + (width - 1 - x) * channels,
                  static_cast<size_t>(channels));
  }
  return permute(pixels, {2, 0, 1});
}

std::vector<std::byte> encode_jpeg(const Tensor& image, int quality) {
  WEFT_CHECK(image.defined() && image.dtype() == u8 && image.dims() == 3 &&
                 (image.size(0) == 1 || image.size(0) == 3) && image.numel() > 0 &&
                 image.size(1) <= 65500 && image.size(2) <= 65500,
             "encode_jpeg",
             "expected a u8 image [1 or 3, H, W] of at most 65500 pixels a side, got ",
             image.defined() ? image.shape() : Shape{});
  WEFT_CHECK(quality >= 1 && quality <= 100, "encode_jpeg", "expected a quality of 1 to 100, got ",
             quality);
  const Tensor rows = contiguous(permute(image, {1, 2, 0}));
  return detail::write_jpeg(rows.data<uint8_t>(), rows.size(1), rows.size(0), rows.size(2),
                            quality);
}

}  // namespace weft::data
