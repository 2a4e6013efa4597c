// Which part of an image a sample shows.
#pragma once

#include "data/detail/draws.h"
#include "data/transform.h"

namespace weft::data::detail {

// A part of a picture in pixels of it, from (x, y) on; borders may lie inside a pixel.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// Whole pixels.
struct PixelBox {
  int64_t x = 0;
  int64_t y = 0;
  int64_t width = 0;
  int64_t height = 0;
};

// `box` is shown; to filter it, pixels of `within` may be used, which contains it.
struct Cut {
  Box box;
  PixelBox within;
};

// The part of an image of `height` by `width` pixels, both at least 1, that a sample shows.
Cut choose_cut(const ImageOptions& options, int64_t height, int64_t width, Draws& draws);

// A random part for random erasing; of no size where ten draws do not fit.
PixelBox choose_erased(const ImageOptions& options, int64_t height, int64_t width, Draws& draws);

}  // namespace weft::data::detail
