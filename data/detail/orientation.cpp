#include "data/detail/orientation.h"

#include <utility>

namespace weft::data::detail {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;

class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {
    big_endian_ = bytes.size() >= 2 && bytes[0] == std::byte{'M'};
  }

  // An integer of `width` bytes; 0 beyond the end.
  uint32_t at(size_t offset, size_t width) const {
    if (offset > bytes_.size() || bytes_.size() - offset < width) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t from = big_endian_ ? i : width - 1 - i;
      value = value << 8 | std::to_integer<uint32_t>(bytes_[offset + from]);
    }
    return value;
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool big_endian_ = false;
};

}  // namespace

Orientation orientation_of(int tag) {
  switch (tag) {
    case 2:
      return {false, true, false};
    case 3:
      return {false, true, true};
    case 4:
      return {false, false, true};
    case 5:
      return {true, false, false};
    case 6:
      return {true, true, false};
    case 7:
      return {true, true, true};
    case 8:
      return {true, false, true};
    default:
      return {};
  }
}

int orientation_tag(std::span<const std::byte> bytes) {
  const Tiff tiff(bytes);
  if (tiff.at(2, 2) != 42) return 1;
  const size_t directory = tiff.at(4, 4);
  const uint32_t entries = tiff.at(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * size_t{i};
    if (entry + 12 > tiff.size()) return 1;
    if (tiff.at(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.at(entry + 8, 2);
    const bool sound = tiff.at(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return sound ? static_cast<int>(value) : 1;
  }
  return 1;
}

Cut stored_cut(const Cut& shown, const Orientation& orientation, int64_t shown_width,
               int64_t shown_height) {
  Cut cut = shown;
  if (orientation.mirror_x) {
    cut.box.x = static_cast<double>(shown_width) - (cut.box.x + cut.box.width);
    cut.within.x = shown_width - (cut.within.x + cut.within.width);
  }
  if (orientation.mirror_y) {
    cut.box.y = static_cast<double>(shown_height) - (cut.box.y + cut.box.height);
    cut.within.y = shown_height - (cut.within.y + cut.within.height);
  }
  if (orientation.transposed) {
    std::swap(cut.box.x, cut.box.y);
    std::swap(cut.box.width, cut.box.height);
    std::swap(cut.within.x, cut.within.y);
    std::swap(cut.within.width, cut.within.height);
  }
  return cut;
}

void transpose(const uint8_t* from, int64_t stride, int64_t width, int64_t height, int64_t channels,
               uint8_t* to) {
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c)
        to[(x * height + y) * channels + c] = from[y * stride + x * channels + c];
    }
  }
}

}  // namespace weft::data::detail
