#include "data/detail/crop.h"

#include <algorithm>
#include <cmath>

namespace weft::data::detail {
namespace {

constexpr uint32_t kTries = 10;

// A part of a random share and shape, somewhere in the image; of no size if no try fits.
PixelBox draw_box(Draw use, Range area, Range aspect, int64_t height, int64_t width, Draws& draws) {
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  for (uint32_t at = 0; at < 4 * kTries; at += 4) {
    const double share = pixels * draws.uniform(use, area.low, area.high, at);
    const double shape =
        std::exp(draws.uniform(use, std::log(aspect.low), std::log(aspect.high), at + 1));
    const int64_t w = std::llround(std::sqrt(share * shape));
    const int64_t h = std::llround(std::sqrt(share / shape));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {draws.below(use, width - w + 1, at + 2), draws.below(use, height - h + 1, at + 3), w,
            h};
  }
  return {};
}

Cut cut_to(const PixelBox& box) {
  return {{static_cast<double>(box.x), static_cast<double>(box.y), static_cast<double>(box.width),
           static_cast<double>(box.height)},
          box};
}

// The largest centred part of shape width/height = aspect, times fraction.
Box centred(int64_t height, int64_t width, double aspect, double fraction) {
  const auto h = static_cast<double>(height);
  const auto w = static_cast<double>(width);
  const double box_width = std::min(w, h * aspect);
  const double box_height = std::min(h, w / aspect);
  return {(w - box_width * fraction) / 2, (h - box_height * fraction) / 2, box_width * fraction,
          box_height * fraction};
}

// Whole pixels around a span, `margin` more on each side where there are such.
void widen(double start, double length, double margin, int64_t size, int64_t& first,
           int64_t& count) {
  first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(start - margin)), 0, size - 1);
  const auto end = static_cast<int64_t>(std::ceil(start + length + margin));
  count = std::clamp<int64_t>(end, first + 1, size) - first;
}

// Pixels beside the box count where the filter reaches them, as if the whole image were resized.
Cut cut_around(const Box& box, int64_t height, int64_t width, int64_t out_height,
               int64_t out_width) {
  Cut cut{box, {}};
  const double reach_x = std::max(1.0, box.width / static_cast<double>(out_width)) + 1;
  const double reach_y = std::max(1.0, box.height / static_cast<double>(out_height)) + 1;
  widen(box.x, box.width, reach_x, width, cut.within.x, cut.within.width);
  widen(box.y, box.height, reach_y, height, cut.within.y, cut.within.height);
  return cut;
}

}  // namespace

Cut choose_cut(const ImageOptions& options, int64_t height, int64_t width, Draws& draws) {
  if (options.crop == Crop::whole) return cut_to({0, 0, width, height});
  if (options.crop == Crop::centre) {
    const double aspect = static_cast<double>(options.width) / static_cast<double>(options.height);
    return cut_around(centred(height, width, aspect, options.crop_fraction), height, width,
                      options.height, options.width);
  }
  const PixelBox drawn =
      draw_box(Draw::crop, options.crop_area, options.crop_aspect, height, width, draws);
  if (drawn.width > 0) return cut_to(drawn);
  const double aspect = std::clamp(static_cast<double>(width) / static_cast<double>(height),
                                   options.crop_aspect.low, options.crop_aspect.high);
  const Box box = centred(height, width, aspect, 1);
  const int64_t w = std::clamp<int64_t>(std::llround(box.width), 1, width);
  const int64_t h = std::clamp<int64_t>(std::llround(box.height), 1, height);
  return cut_to({(width - w) / 2, (height - h) / 2, w, h});
}

PixelBox choose_erased(const ImageOptions& options, int64_t height, int64_t width, Draws& draws) {
  if (draws.uniform(Draw::erase) >= options.erase) return {};
  return draw_box(Draw::erase_box, options.erase_area, options.erase_aspect, height, width, draws);
}

}  // namespace weft::data::detail
