#include "data/detail/image_reader.h"

#include "core/error.h"

#include <algorithm>
#include <utility>

namespace weft::data::detail {
namespace {

// 1/2, 1/4 and 1/8 are what libjpeg-turbo has fast transforms for.
int64_t decode_scale(const Box& box, int64_t height, int64_t width) {
  int64_t scale = 1;
  while (scale < 8 && box.width >= static_cast<double>(2 * scale * width) &&
         box.height >= static_cast<double>(2 * scale * height))
    scale *= 2;
  return scale;
}

}  // namespace

StoredImage ImageReader::open(std::span<const std::byte> bytes, const std::string& name,
                              int64_t max_pixels) {
  is_jpeg_ = is_jpeg(bytes);
  WEFT_CHECK(is_jpeg_ || is_png(bytes), "image", name, ": expected a JPEG or PNG image, got ",
             bytes.empty() ? "an empty file" : "other data");
  shown_ = is_jpeg_ ? jpeg_.open(bytes, name, max_pixels) : png_.open(bytes, name, max_pixels);
  orientation_ = orientation_of(shown_.orientation);
  if (orientation_.transposed) std::swap(shown_.width, shown_.height);
  return shown_;
}

PixelView ImageReader::read(const Cut& cut, int64_t height, int64_t width, int64_t channels) {
  const Cut stored = stored_cut(cut, orientation_, shown_.width, shown_.height);
  if (orientation_.transposed) std::swap(height, width);
  const int64_t scale = is_jpeg_ ? decode_scale(stored.box, height, width) : 1;
  const DecodedBox decoded = is_jpeg_ ? jpeg_.read(stored.within, scale, channels, pixels_)
                                      : png_.read(stored.within, channels, pixels_);
  // The decoder may give more than may be used.
  PixelBox within{stored.within.x / scale, stored.within.y / scale, 0, 0};
  within.width = (stored.within.x + stored.within.width + scale - 1) / scale - within.x;
  within.height = (stored.within.y + stored.within.height + scale - 1) / scale - within.y;
  PixelView view;
  view.data = pixels_.data() + (within.y - decoded.box.y) * decoded.stride +
              (within.x - decoded.box.x) * channels;
  view.stride = decoded.stride;
  view.width = within.width;
  view.height = within.height;
  view.channels = channels;
  const auto by = static_cast<double>(scale);
  view.box = {stored.box.x / by - static_cast<double>(within.x),
              stored.box.y / by - static_cast<double>(within.y), stored.box.width / by,
              stored.box.height / by};
  if (orientation_.transposed) {
    turned_.resize(static_cast<size_t>(view.width * view.height * channels));
    transpose(view.data, view.stride, view.width, view.height, channels, turned_.data());
    view.data = turned_.data();
    std::swap(view.width, view.height);
    std::swap(view.box.x, view.box.y);
    std::swap(view.box.width, view.box.height);
    view.stride = view.width * channels;
  }
  view.mirror_x = orientation_.mirror_x;
  view.mirror_y = orientation_.mirror_y;
  return view;
}

}  // namespace weft::data::detail
