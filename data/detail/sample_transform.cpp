// The common ways are one pass: bytes of the batch's size are copied (moved, mirrored, normalised),
// others resampled straight into the batch (mirrored, normalised). Turning and colours go through a
// picture of f32 in units of bytes.
#include "data/detail/sample_transform.h"

#include "core/error.h"
#include "data/detail/colours.h"

#include <algorithm>
#include <cmath>

namespace weft::data::detail {
namespace {

constexpr const char* kImages = "images";

void check_range(Range range, double low, double high, const char* what) {
  WEFT_CHECK(range.low >= low && range.low <= range.high && range.high <= high && range.high > 0,
             kImages, "expected ", what, " rising within [", low, ", ", high, "], got [", range.low,
             ", ", range.high, "]");
}

void check_between(double value, double low, double high, const char* what) {
  WEFT_CHECK(value >= low && value <= high, kImages, "expected ", what, " in [", low, ", ", high,
             "], got ", value);
}

bool is_whole(double value) {
  return value == std::floor(value);
}

PixelView mirrored(PixelView view, bool mirror) {
  view.mirror_x = view.mirror_x != mirror;
  return view;
}

}  // namespace

// Where the pixels of the batch come from in the resized picture.
struct SampleTransform::Motion {
  bool mirror = false;
  int64_t dx = 0;
  int64_t dy = 0;
  bool turns = false;
  double cosine = 1;
  double sine = 0;
  double x = 0;
  double y = 0;
};

SampleTransform::SampleTransform(const ImageOptions& options, int64_t channels)
    : options_(options), channels_(channels) {
  WEFT_CHECK(channels == 1 || channels == 3, kImages, "expected images of 1 or 3 channels, got ",
             channels);
  constexpr int64_t kLongest = 1 << 15;
  WEFT_CHECK(options.height >= 1 && options.width >= 1 && options.height <= kLongest &&
                 options.width <= kLongest,
             kImages, "expected batches of 1 to ", kLongest, " pixels a side, got ", options.height,
             " × ", options.width);
  check_between(options.crop_fraction, 1e-6, 1, "a crop fraction");
  check_range(options.crop_area, 1e-9, 1, "a crop area");
  check_range(options.crop_aspect, 1e-3, 1e3, "a crop aspect");
  WEFT_CHECK(options.shift >= 0 && options.shift <= kLongest, kImages, "expected a shift of 0 to ",
             kLongest, ", got ", options.shift);
  check_between(options.rotate, 0, 180, "a rotation");
  check_between(options.translate, 0, 1, "a translation");
  check_between(options.brightness, 0, 1, "a change of brightness");
  check_between(options.contrast, 0, 1, "a change of contrast");
  check_between(options.saturation, 0, 1, "a change of saturation");
  check_between(options.hue, 0, 0.5, "a change of hue");
  WEFT_CHECK(channels == 3 || (options.saturation == 0 && options.hue == 0), kImages,
             "expected three channels to change saturation or hue, got grey images");
  check_between(options.erase, 0, 1, "a probability to erase");
  check_range(options.erase_area, 1e-9, 1, "an erased area");
  check_range(options.erase_aspect, 1e-3, 1e3, "an erased aspect");
  for (size_t c = 0; c < 3; ++c) {
    const double mean = options.mean.values[c];
    const double stddev = options.stddev.values[c];
    WEFT_CHECK(stddev > 0 && std::isfinite(mean) && std::isfinite(stddev), kImages,
               "expected a finite mean and a positive stddev, got ", mean, " and ", stddev);
    values_.scale[c] = static_cast<float>(1 / (255 * stddev));
    values_.offset[c] = static_cast<float>(-mean / stddev);
  }
}

bool SampleTransform::jitters() const {
  return options_.brightness > 0 || options_.contrast > 0 || options_.saturation > 0 ||
         options_.hue > 0;
}

bool SampleTransform::only_copies(int64_t height, int64_t width) const {
  return options_.crop == Crop::whole && options_.height == height && options_.width == width &&
         options_.rotate == 0 && options_.translate == 0 && !jitters();
}

SampleTransform::Motion SampleTransform::draw_motion(Draws& draws) const {
  Motion motion;
  motion.mirror = options_.flip && (draws.bits(Draw::flip) & 1) != 0;
  if (options_.shift > 0) {
    motion.dx = draws.below(Draw::shift_x, 2 * options_.shift + 1) - options_.shift;
    motion.dy = draws.below(Draw::shift_y, 2 * options_.shift + 1) - options_.shift;
  }
  motion.turns = options_.rotate > 0 || options_.translate > 0;
  if (motion.turns) {
    constexpr double kRadians = 3.14159265358979323846 / 180;
    const double angle = draws.uniform(Draw::rotate, -options_.rotate, options_.rotate) * kRadians;
    motion.cosine = std::cos(angle);
    motion.sine = std::sin(angle);
    const double far = options_.translate;
    motion.x = draws.uniform(Draw::translate_x, -far, far) * static_cast<double>(options_.width);
    motion.y = draws.uniform(Draw::translate_y, -far, far) * static_cast<double>(options_.height);
  }
  return motion;
}

// The view is of the batch's size.
void SampleTransform::copy(const PixelView& view, const Motion& motion, float* out) const {
  const int64_t width = options_.width;
  const int64_t height = options_.height;
  const int64_t channels = channels_;
  const bool mirror_x = view.mirror_x != motion.mirror;
  // A pixel at x comes from `x - dx`, seen in the mirror or not.
  const int64_t dx = motion.mirror ? -motion.dx : motion.dx;
  const uint8_t* pixels = view.data + static_cast<int64_t>(view.box.y) * view.stride +
                          static_cast<int64_t>(view.box.x) * channels;
  const int64_t begin = std::clamp<int64_t>(dx, 0, width);
  const int64_t end = std::clamp<int64_t>(width + dx, 0, width);
  if (channels == 1 && !mirror_x && !view.mirror_y && motion.dx == 0 && motion.dy == 0 &&
      view.stride == width) {
    const float scale = values_.scale[0];
    const float offset = values_.offset[0];
    for (int64_t i = 0; i < height * width; ++i)
      out[i] = static_cast<float>(pixels[i]) * scale + offset;
    return;
  }
  const auto fill = [&](float* line, int64_t first, int64_t last) {
    for (int64_t x = first; x < last; ++x) {
      for (int64_t c = 0; c < channels; ++c)
        line[x * channels + c] = values_.offset[static_cast<size_t>(c)];
    }
  };
  for (int64_t y = 0; y < height; ++y) {
    float* line = out + y * width * channels;
    const int64_t row = y - motion.dy;
    if (row < 0 || row >= height) {
      fill(line, 0, width);
      continue;
    }
    const uint8_t* from = pixels + (view.mirror_y ? height - 1 - row : row) * view.stride;
    fill(line, 0, begin);
    fill(line, end, width);
    if (channels == 1 && !mirror_x) {
      const float scale = values_.scale[0];
      const float offset = values_.offset[0];
      for (int64_t x = begin; x < end; ++x)
        line[x] = static_cast<float>(from[x - dx]) * scale + offset;
      continue;
    }
    for (int64_t x = begin; x < end; ++x) {
      const uint8_t* pixel = from + (mirror_x ? width - 1 - (x - dx) : x - dx) * channels;
      for (int64_t c = 0; c < channels; ++c)
        line[x * channels + c] =
            static_cast<float>(pixel[c]) * values_.scale[static_cast<size_t>(c)] +
            values_.offset[static_cast<size_t>(c)];
    }
  }
}

// Bilinear; a pixel of the batch is looked up where the motion took it from.
void SampleTransform::move(const float* from, const Motion& motion, float* to) const {
  const int64_t width = options_.width;
  const int64_t height = options_.height;
  const int64_t channels = channels_;
  const double middle_x = static_cast<double>(width - 1) / 2;
  const double middle_y = static_cast<double>(height - 1) / 2;
  const auto at = [&](int64_t x, int64_t y, int64_t c) {
    const bool inside = x >= 0 && x < width && y >= 0 && y < height;
    return inside ? from[(y * width + x) * channels + c] : 0.0f;
  };
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const int64_t seen = motion.mirror ? width - 1 - x : x;
      const double u = static_cast<double>(seen - motion.dx) - middle_x - motion.x;
      const double v = static_cast<double>(y - motion.dy) - middle_y - motion.y;
      const double source_x = motion.cosine * u + motion.sine * v + middle_x;
      const double source_y = -motion.sine * u + motion.cosine * v + middle_y;
      const auto left = static_cast<int64_t>(std::floor(source_x));
      const auto top = static_cast<int64_t>(std::floor(source_y));
      const auto right_share = static_cast<float>(source_x - static_cast<double>(left));
      const auto bottom_share = static_cast<float>(source_y - static_cast<double>(top));
      for (int64_t c = 0; c < channels; ++c) {
        const float upper =
            at(left, top, c) * (1 - right_share) + at(left + 1, top, c) * right_share;
        const float lower =
            at(left, top + 1, c) * (1 - right_share) + at(left + 1, top + 1, c) * right_share;
        to[(y * width + x) * channels + c] = upper * (1 - bottom_share) + lower * bottom_share;
      }
    }
  }
}

void SampleTransform::jitter(Draws& draws, float* pixels) const {
  const int64_t count = options_.height * options_.width;
  const auto factor = [&](Draw use, double reach) {
    return static_cast<float>(draws.uniform(use, 1 - reach, 1 + reach));
  };
  std::array<int, 4> order = {0, 1, 2, 3};
  auto number = draws.below(Draw::jitter_order, 24);
  for (int64_t left = 4; left > 1; --left) {
    std::swap(order[static_cast<size_t>(left - 1)], order[static_cast<size_t>(number % left)]);
    number /= left;
  }
  for (const int step : order) {
    if (step == 0 && options_.brightness > 0) {
      brighten(pixels, count * channels_, factor(Draw::brightness, options_.brightness));
    } else if (step == 1 && options_.contrast > 0) {
      change_contrast(pixels, count, channels_, factor(Draw::contrast, options_.contrast));
    } else if (step == 2 && options_.saturation > 0) {
      saturate(pixels, count, factor(Draw::saturation, options_.saturation));
    } else if (step == 3 && options_.hue > 0) {
      turn_hue(pixels, count,
               static_cast<float>(draws.uniform(Draw::hue, -options_.hue, options_.hue)));
    }
  }
}

void SampleTransform::erase(Draws& draws, float* out) const {
  const PixelBox box = choose_erased(options_, options_.height, options_.width, draws);
  for (int64_t y = box.y; y < box.y + box.height; ++y)
    std::fill_n(out + (y * options_.width + box.x) * channels_, box.width * channels_, 0.0f);
}

void SampleTransform::run(const PixelView& view, Draws& draws, TransformScratch& scratch,
                          float* out) const {
  const int64_t height = options_.height;
  const int64_t width = options_.width;
  const Motion motion = draw_motion(draws);
  const bool moves = motion.dx != 0 || motion.dy != 0;
  const bool same_size = view.box.width == static_cast<double>(width) &&
                         view.box.height == static_cast<double>(height) && is_whole(view.box.x) &&
                         is_whole(view.box.y);
  if (same_size && !motion.turns && !jitters()) {
    copy(view, motion, out);
  } else if (!motion.turns && !moves && !jitters()) {
    resample(mirrored(view, motion.mirror), height, width, values_, scratch.resample, out);
  } else {
    const auto count = static_cast<size_t>(height * width * channels_);
    scratch.resized.resize(count);
    scratch.moved.resize(count);
    if (motion.turns || moves) {
      resample(view, height, width, {}, scratch.resample, scratch.resized.data());
      move(scratch.resized.data(), motion, scratch.moved.data());
    } else {
      resample(mirrored(view, motion.mirror), height, width, {}, scratch.resample,
               scratch.moved.data());
    }
    if (jitters()) jitter(draws, scratch.moved.data());
    for (size_t i = 0; i < count; ++i) {
      const size_t c = channels_ == 1 ? 0 : i % 3;
      out[i] = scratch.moved[i] * values_.scale[c] + values_.offset[c];
    }
  }
  if (options_.erase > 0) erase(draws, out);
}

}  // namespace weft::data::detail
