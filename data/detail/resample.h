// Resizing a part of a picture, with what comes after it in the same pass.
#pragma once

#include "data/detail/crop.h"

#include <array>
#include <vector>

namespace weft::data::detail {

// Interleaved u8 pixels, and the part of them to show.
struct PixelView {
  const uint8_t* data = nullptr;
  int64_t stride = 0;  // bytes from row to row
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;   // 1 or 3
  Box box;                // inside these pixels
  bool mirror_x = false;  // what is shown is mirrored left-right, up-down
  bool mirror_y = false;
};

// A cut of a picture that lies in memory as a whole, `stride` bytes from row to row.
inline PixelView view_of_cut(const uint8_t* pixels, int64_t stride, int64_t channels,
                             const Cut& cut) {
  const PixelBox& within = cut.within;
  return {.data = pixels + within.y * stride + within.x * channels,
          .stride = stride,
          .width = within.width,
          .height = within.height,
          .channels = channels,
          .box = {cut.box.x - static_cast<double>(within.x),
                  cut.box.y - static_cast<double>(within.y), cut.box.width, cut.box.height}};
}

// value = byte * scale + offset, by channel.
struct Affine {
  std::array<float, 3> scale = {1, 1, 1};
  std::array<float, 3> offset = {0, 0, 0};
};

// Which pixels of a line make up which pixel of the resized one, and how much.
struct Taps {
  int64_t count = 0;           // for each
  std::vector<int32_t> first;  // the first pixel
  std::vector<float> weights;  // count for each, 0 where fewer are needed; their sum is 1
};

// Buffers that one thread uses again for image after image.
struct ResampleScratch {
  Taps across;
  Taps down;
  std::vector<float> line;
};

// The box, resized to [height, width, channels] of f32 and mapped by `values`. Antialiased
// bilinear: a triangle as wide as two pixels of the source or of the result, whichever are larger.
void resample(const PixelView& view, int64_t height, int64_t width, const Affine& values,
              ResampleScratch& scratch, float* out);

}  // namespace weft::data::detail
