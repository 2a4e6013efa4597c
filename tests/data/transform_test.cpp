// Transforms against slow and simple references.
#include "data/transform.h"

#include "core/parallel.h"
#include "data/detail/colours.h"
#include "data/detail/sample_transform.h"
#include "data/images.h"
#include "ops/copy.h"
#include "ops/view.h"
#include "tests/support/image_files.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::data {
namespace {

using detail::Box;
using detail::PixelView;
using test::Picture;
using test::smooth_picture;

// Resized value by the definition, in f64: a triangle over all pixels of the picture.
double resized(const PixelView& view, int64_t height, int64_t width, int64_t x, int64_t y,
               int64_t c) {
  const double scale_x = view.box.width / static_cast<double>(width);
  const double scale_y = view.box.height / static_cast<double>(height);
  if (view.mirror_x) x = width - 1 - x;
  if (view.mirror_y) y = height - 1 - y;
  const double centre_x = view.box.x + (static_cast<double>(x) + 0.5) * scale_x;
  const double centre_y = view.box.y + (static_cast<double>(y) + 0.5) * scale_y;
  double sum = 0;
  double weights = 0;
  for (int64_t v = 0; v < view.height; ++v) {
    for (int64_t u = 0; u < view.width; ++u) {
      const double wx =
          1 - std::abs(static_cast<double>(u) + 0.5 - centre_x) / std::max(1.0, scale_x);
      const double wy =
          1 - std::abs(static_cast<double>(v) + 0.5 - centre_y) / std::max(1.0, scale_y);
      if (wx <= 0 || wy <= 0) continue;
      sum += wx * wy * view.data[v * view.stride + u * view.channels + c];
      weights += wx * wy;
    }
  }
  return sum / weights;
}

TEST(Resample, MatchesTheDefinition) {
  detail::ResampleScratch scratch;
  for (const int channels : {1, 3}) {
    const Picture picture = smooth_picture(37, 29, channels);
    for (const Box& box : {Box{0, 0, 37, 29}, Box{3, 4, 20, 11}, Box{2.25, 1.5, 9.5, 26.75},
                           Box{36, 28, 1, 1}, Box{0, 10, 37, 2}}) {
      for (const auto& [height, width] : {std::pair{7, 5}, {29, 37}, {50, 61}, {1, 1}, {3, 90}}) {
        PixelView view{picture.values.data(), 37 * channels, 37, 29, channels, box};
        view.mirror_x = width % 2 == 1;
        view.mirror_y = height % 2 == 1;
        std::vector<float> out(static_cast<size_t>(height * width * channels) + 1, -1.0f);
        const detail::Affine values{{2, 3, 4}, {-1, 0, 1}};
        detail::resample(view, height, width, values, scratch, out.data());
        for (int y = 0; y < height; ++y) {
          for (int x = 0; x < width; ++x) {
            for (int c = 0; c < channels; ++c) {
              const double expected = resized(view, height, width, x, y, c) * (2 + c) + (c - 1);
              ASSERT_NEAR(out[static_cast<size_t>((y * width + x) * channels + c)], expected, 4e-3)
                  << channels << " channels to " << width << "×" << height << " at " << x << ","
                  << y;
            }
          }
        }
        EXPECT_EQ(out.back(), -1.0f);  // nothing is written past the end
      }
    }
  }
}

Images colours(int64_t count, ImageOptions options) {
  const Tensor pixels = empty({count, 16, 20, 3}, {.dtype = u8});
  for (int64_t i = 0; i < count; ++i) {
    Picture picture = smooth_picture(20, 16);
    for (size_t p = 0; p < picture.values.size(); ++p)
      pixels.data<uint8_t>()[i * 960 + static_cast<int64_t>(p)] =
          static_cast<uint8_t>(picture.values[p] + i % 40);
  }
  const Tensor labels = empty({count}, {.dtype = i32});
  std::fill_n(labels.data<int32_t>(), count, 300);
  return {permute(pixels, {0, 3, 1, 2}), labels, options};
}

std::vector<float> pixels_of(const Images& images, int64_t index, uint64_t epoch = 0) {
  const std::vector<int64_t> one = {index};
  return contiguous(
             permute(images.gather(one, 1, {.seed = 3, .epoch = epoch}).inputs, {0, 2, 3, 1}))
      .to_vector<float>();
}

TEST(Images, ColoursAreNhwcAndNormalisedByChannel) {
  const Images images = colours(2, {.mean = {0.1, 0.2, 0.3}, .stddev = {0.5, 0.25, 0.125}});
  EXPECT_EQ(images.classes(), 301);
  EXPECT_EQ(images.sample_shape(), Shape({3, 16, 20}));
  const std::vector<int64_t> both = {1, 0};
  const Batch batch = images.gather(both, 3, {});
  EXPECT_TRUE(batch.inputs.is_channels_last());
  EXPECT_EQ(batch.targets.to_vector<int64_t>(), (std::vector<int64_t>{300, 300, kNoTarget}));
  const Picture picture = smooth_picture(20, 16);
  const auto values = pixels_of(images, 1);
  const double mean[] = {0.1, 0.2, 0.3};
  const double stddev[] = {0.5, 0.25, 0.125};
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 20; ++x) {
      for (int c = 0; c < 3; ++c)
        EXPECT_NEAR(values[static_cast<size_t>((y * 20 + x) * 3 + c)],
                    ((picture.at(x, y, c) + 1) / 255.0 - mean[c]) / stddev[c], 1e-5);
    }
  }
}

TEST(Images, ShiftAndFlipMoveWholePixels) {
  const ImageOptions options{.stddev = 1.0 / 255, .flip = true, .shift = 3};
  const Images images = colours(40, options);
  const Images plain = images.with({.stddev = 1.0 / 255});
  int mirrored = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const auto moved = pixels_of(images, i);
    const auto still = pixels_of(plain, i);
    int matches = 0;
    for (int64_t flip = 0; flip < 2; ++flip) {
      for (int64_t dx = -3; dx <= 3; ++dx) {
        for (int64_t dy = -3; dy <= 3; ++dy) {
          bool same = true;
          for (int64_t p = 0; p < 960 && same; ++p) {
            const int64_t seen = p / 3 % 20;
            const int64_t x = (flip ? 19 - seen : seen) - dx;
            const int64_t y = p / 60 - dy;
            const bool inside = x >= 0 && x < 20 && y >= 0 && y < 16;
            const float expected =
                inside ? still[static_cast<size_t>((y * 20 + x) * 3 + p % 3)] : 0.0f;
            same = moved[static_cast<size_t>(p)] == expected;
          }
          matches += same;
          mirrored += same && flip;
        }
      }
    }
    EXPECT_EQ(matches, 1) << i;
  }
  EXPECT_GT(mirrored, 8);
  EXPECT_LT(mirrored, 32);
}

TEST(Images, RandomCropsCoverWhatTheyShould) {
  const ImageOptions options{.height = 8, .width = 8, .crop = Crop::random};
  double area = 0;
  double most = 0;
  double least = 1;
  for (int64_t i = 0; i < 2000; ++i) {
    detail::Draws draws({5, 1}, i);
    const detail::Cut cut = detail::choose_cut(options, 375, 500, draws);
    ASSERT_GE(cut.within.x, 0);
    ASSERT_GE(cut.within.y, 0);
    ASSERT_LE(cut.within.x + cut.within.width, 500);
    ASSERT_LE(cut.within.y + cut.within.height, 375);
    const double aspect = cut.box.width / cut.box.height;
    ASSERT_GT(aspect, 0.75 * 0.98);
    ASSERT_LT(aspect, 4.0 / 3 * 1.02);
    const double share = cut.box.width * cut.box.height / (500.0 * 375);
    area += share / 2000;
    most = std::max(most, share);
    least = std::min(least, share);
  }
  EXPECT_NEAR(area, 0.433, 0.012);  // large ones fit less often; from a simulation
  EXPECT_GT(most, 0.9);
  EXPECT_LT(least, 0.1);
  // What never fits falls back on the centre.
  detail::Draws draws({5, 1}, 0);
  const detail::Cut cut = detail::choose_cut(options, 10, 1000, draws);
  EXPECT_EQ(cut.within.height, 10);
  EXPECT_EQ(cut.within.width, 13);
  EXPECT_EQ(cut.within.x, 493);
}

TEST(Images, CentreIsThatOfTheResizedWhole) {
  const Images whole = colours(1, {.height = 32, .width = 40, .stddev = 1.0 / 255});
  const Images centre = whole.with(
      {.height = 16, .width = 16, .crop = Crop::centre, .crop_fraction = 0.5, .stddev = 1.0 / 255});
  const auto all = pixels_of(whole, 0);
  const auto middle = pixels_of(centre, 0);
  for (int64_t y = 0; y < 16; ++y) {
    for (int64_t x = 0; x < 48; ++x)
      EXPECT_NEAR(middle[static_cast<size_t>(y * 48 + x)],
                  all[static_cast<size_t>((y + 8) * 120 + 36 + x)], 1e-3);
  }
}

TEST(Images, TurnsAroundTheMiddle) {
  const Images images = colours(1, {.stddev = 1.0 / 255});
  const auto still = pixels_of(images, 0);
  detail::TransformScratch scratch;
  const detail::SampleTransform transform(
      {.height = 16, .width = 20, .stddev = 1.0 / 255, .rotate = 180}, 3);
  const Picture picture = smooth_picture(20, 16);
  const detail::Cut cut{{0, 0, 20, 16}, {0, 0, 20, 16}};
  const PixelView view = detail::view_of_cut(picture.values.data(), 60, 3, cut);
  for (int64_t i = 0; i < 200; ++i) {
    detail::Draws draws({3, 0}, i);
    const double angle = draws.uniform(detail::Draw::rotate, -180, 180);
    std::vector<float> out(960);
    transform.run(view, draws, scratch, out.data());
    // The middle of the picture stays; a point 6 pixels to its right goes where the angle says.
    const double radians = angle * 3.14159265358979 / 180;
    const double x = 9.5 + 6 * std::cos(radians);
    const double y = 7.5 + 6 * std::sin(radians);
    const auto at = [&](const std::vector<float>& from, double u, double v) {
      const auto left = static_cast<int64_t>(u);
      const auto top = static_cast<int64_t>(v);
      const auto pixel = [&](int64_t px, int64_t py) {
        return static_cast<double>(from[static_cast<size_t>((py * 20 + px) * 3)]);
      };
      const double a = u - static_cast<double>(left);
      const double b = v - static_cast<double>(top);
      return (pixel(left, top) * (1 - a) + pixel(left + 1, top) * a) * (1 - b) +
             (pixel(left, top + 1) * (1 - a) + pixel(left + 1, top + 1) * a) * b;
    };
    EXPECT_NEAR(at(out, x, y), at(still, 15.5, 7.5), 4.0) << angle;
    EXPECT_NEAR(at(out, 9.5, 7.5), at(still, 9.5, 7.5), 2.0) << angle;
  }
}

TEST(Images, TranslationMovesBySharesOfTheSize) {
  const Images images = colours(60, {.stddev = 1.0 / 255, .translate = 0.25});
  int64_t black = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const auto moved = pixels_of(images, i);
    int64_t columns = 0;
    for (int64_t x = 0; x < 20; ++x) {
      float sum = 0;
      for (int64_t y = 0; y < 16; ++y)
        sum += moved[static_cast<size_t>((y * 20 + x) * 3)];
      columns += sum == 0;
    }
    EXPECT_LE(columns, 5);
    black = std::max(black, columns);
  }
  EXPECT_GE(black, 3);
}

TEST(Colours, FollowTheirDefinitions) {
  const std::vector<float> pixels = {10, 20, 30, 200, 100, 50, 255, 0, 0, 80, 80, 80};
  auto bright = pixels;
  detail::brighten(bright.data(), 12, 1.5f);
  EXPECT_FLOAT_EQ(bright[0], 15);
  EXPECT_FLOAT_EQ(bright[3], 255);
  auto flat = pixels;
  detail::change_contrast(flat.data(), 4, 3, 0);
  double mean = 0;
  for (int i = 0; i < 12; i += 3)
    mean += (0.299 * pixels[i] + 0.587 * pixels[i + 1] + 0.114 * pixels[i + 2]) / 4;
  for (const float value : flat)
    EXPECT_NEAR(value, mean, 1e-3);
  auto grey = pixels;
  detail::saturate(grey.data(), 4, 0);
  EXPECT_NEAR(grey[0], 0.299 * 10 + 0.587 * 20 + 0.114 * 30, 1e-4);
  EXPECT_EQ(grey[0], grey[2]);
  auto same = pixels;
  detail::saturate(same.data(), 4, 1);
  detail::change_contrast(same.data(), 4, 3, 1);
  detail::turn_hue(same.data(), 4, 0);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(same[i], pixels[i], 1e-3);
  auto turned = pixels;
  detail::turn_hue(turned.data(), 4, 1.0f / 3);  // red to green to blue to red
  for (size_t i = 0; i < 12; i += 3) {
    EXPECT_NEAR(turned[i + 1], pixels[i], 1e-3);
    EXPECT_NEAR(turned[i + 2], pixels[i + 1], 1e-3);
    EXPECT_NEAR(turned[i], pixels[i + 2], 1e-3);
  }
}

TEST(Images, JitterChangesEachSampleByItself) {
  const Images images =
      colours(8, {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1});
  const Images plain = images.with({});
  EXPECT_NE(pixels_of(images, 0), pixels_of(plain, 0));
  EXPECT_NE(pixels_of(images, 0, 0), pixels_of(images, 0, 1));
  for (const float value : pixels_of(images, 5)) {
    EXPECT_GE(value, 0);
    EXPECT_LE(value, 1.00001f);
  }
  // Without a change to the colours the sample stays.
  const Images no_change = images.with({.brightness = 1e-9});
  const auto a = pixels_of(no_change, 2);
  const auto b = pixels_of(plain, 2);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-5);
}

TEST(Images, ErasingLeavesAZeroBox) {
  const Images images = colours(200, {.mean = 0.9, .erase = 0.5});
  const Images plain = images.with({.mean = 0.9});
  int erased = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const auto values = pixels_of(images, i);
    const auto whole = pixels_of(plain, i);
    int64_t left = 20, right = -1, top = 16, bottom = -1, zeros = 0;
    for (int64_t y = 0; y < 16; ++y) {
      for (int64_t x = 0; x < 20; ++x) {
        const auto at = static_cast<size_t>((y * 20 + x) * 3);
        if (values[at] != 0) {
          EXPECT_EQ(values[at], whole[at]);
          continue;
        }
        ++zeros;
        left = std::min(left, x);
        right = std::max(right, x);
        top = std::min(top, y);
        bottom = std::max(bottom, y);
      }
    }
    if (zeros == 0) continue;
    ++erased;
    EXPECT_EQ(zeros, (right - left + 1) * (bottom - top + 1));
    EXPECT_LE(zeros, 0.4 * 320);
  }
  EXPECT_GT(erased, 70);
  EXPECT_LT(erased, 130);
}

// Switching one thing on leaves the draws of the others as they were; threads change nothing.
TEST(Images, DrawsAreIndependentOfEachOtherAndOfThreads) {
  const ImageOptions moving{.flip = true, .shift = 2};
  ImageOptions more = moving;
  more.erase = 1;
  const Images a = colours(64, moving);
  const Images b = a.with(more);
  for (int64_t i = 0; i < 10; ++i) {
    const auto without = pixels_of(a, i);
    const auto with = pixels_of(b, i);
    for (size_t p = 0; p < with.size(); ++p)
      EXPECT_TRUE(with[p] == 0 || with[p] == without[p]);
  }
  const Images heavy = a.with({.height = 12,
                               .width = 9,
                               .crop = Crop::random,
                               .flip = true,
                               .rotate = 10,
                               .brightness = 0.2,
                               .hue = 0.2,
                               .erase = 0.5});
  std::vector<int64_t> all(64);
  for (size_t i = 0; i < 64; ++i)
    all[i] = static_cast<int64_t>(i);
  const auto gathered = [&](int threads) {
    set_num_threads(threads);
    const auto values = heavy.gather(all, 64, {7, 2}).inputs.to_vector<float>();
    set_num_threads(1);
    return values;
  };
  EXPECT_EQ(gathered(1), gathered(4));
}

TEST(Images, RefusesOptionsWithoutMeaning) {
  const auto with = [](ImageOptions options) { colours(1, options); };
  EXPECT_NO_THROW(with({}));
  EXPECT_THROW(with({.height = -1}), Error);
  EXPECT_THROW(with({.width = 1 << 20}), Error);
  EXPECT_THROW(with({.crop_fraction = 0}), Error);
  EXPECT_THROW(with({.crop_area = {0.5, 0.4}}), Error);
  EXPECT_THROW(with({.crop_aspect = {0, 1}}), Error);
  EXPECT_THROW(with({.stddev = {1, 0, 1}}), Error);
  EXPECT_THROW(with({.rotate = 181}), Error);
  EXPECT_THROW(with({.hue = 0.6}), Error);
  EXPECT_THROW(with({.erase = 1.5}), Error);
  const Tensor grey = empty({1, 4, 4}, {.dtype = u8});
  const Tensor label = from_values(std::vector<int32_t>{0});
  EXPECT_THROW(Images(grey, label, {.saturation = 0.5}), Error);
  EXPECT_THROW(Images(grey, from_values(std::vector<int32_t>{-1})), Error);
  EXPECT_THROW(Images(grey, from_values(std::vector<int32_t>{3}), {}, 3), Error);
  EXPECT_THROW(Images(empty({1, 3, 4, 4}, {.dtype = u8}), label), Error);  // not channels-last
}

}  // namespace
}  // namespace weft::data
