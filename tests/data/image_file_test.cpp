#include "data/image_file.h"

#include "data/detail/image_reader.h"
#include "tests/support/image_files.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace weft::data {
namespace {

using test::Bytes;
using test::JpegKind;
using test::make_jpeg;
using test::make_png;
using test::Picture;
using test::PngKind;
using test::smooth_picture;
using testing::HasSubstr;

uint8_t value(const Tensor& image, int64_t x, int64_t y, int64_t c) {
  return *(image.data<uint8_t>() + c * image.stride(0) + y * image.stride(1) + x * image.stride(2));
}

// The largest difference of a decoded image from a picture of as many channels, or of one.
int difference(const Tensor& image, const Picture& picture) {
  EXPECT_EQ(image.size(1), picture.height);
  EXPECT_EQ(image.size(2), picture.width);
  int most = 0;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      for (int c = 0; c < image.size(0); ++c) {
        const int expected = picture.at(x, y, picture.channels == 1 ? 0 : c);
        most = std::max(most, std::abs(int{value(image, x, y, c)} - expected));
      }
    }
  }
  return most;
}

TEST(ImageFile, JpegGivesWhatWasWritten) {
  const Picture picture = smooth_picture(61, 43);
  const Bytes file = make_jpeg(picture, {.quality = 100, .sampling_x = 1, .sampling_y = 1});
  const ImageInfo info = image_info(file, "a.jpg");
  EXPECT_EQ(info.width, 61);
  EXPECT_EQ(info.height, 43);
  EXPECT_EQ(info.channels, 3);
  const Tensor image = decode_image(file, "a.jpg");
  EXPECT_EQ(image.shape(), Shape({3, 43, 61}));
  EXPECT_LE(difference(image, picture), 4);
  EXPECT_LE(difference(decode_image(make_jpeg(picture, {.rgb = true}), "rgb.jpg"), picture), 8);
}

TEST(ImageFile, ProgressiveAndRestartMarkersChangeNothing) {
  const Picture picture = smooth_picture(61, 43);
  const Tensor plain = decode_image(make_jpeg(picture), "plain");
  for (const JpegKind& kind : {JpegKind{.progressive = true}, JpegKind{.restart = 2}}) {
    const Tensor image = decode_image(make_jpeg(picture, kind), "other");
    EXPECT_EQ(image.to_vector<int64_t>(), plain.to_vector<int64_t>());
  }
}

TEST(ImageFile, GreyBecomesThreeEqualChannelsAndBack) {
  const Picture grey = smooth_picture(20, 30, 1);
  for (const Bytes& file : {make_jpeg(grey, {.quality = 100}), make_png(grey)}) {
    EXPECT_EQ(image_info(file, "grey").channels, 1);
    EXPECT_LE(difference(decode_image(file, "grey"), grey), 3);
    EXPECT_LE(difference(decode_image(file, "grey", 1), grey), 3);
  }
  const Picture colours = smooth_picture(20, 30);
  Picture expected = smooth_picture(20, 30, 1);
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const uint8_t* rgb = &colours.values[3 * i];
    expected.values[i] =
        static_cast<uint8_t>(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] + 0.5);
  }
  EXPECT_LE(difference(decode_image(make_png(colours), "png", 1), expected), 1);
  EXPECT_LE(difference(decode_image(make_jpeg(colours, {.quality = 100}), "jpeg", 1), expected), 3);
  EXPECT_THROW(decode_image(make_png(grey), "grey", 2), Error);
}

TEST(ImageFile, InksBecomeLight) {
  const Picture inks = smooth_picture(24, 16, 4);
  Picture expected = smooth_picture(24, 16);
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const uint8_t* ink = &inks.values[i / 3 * 4];
    expected.values[i] = static_cast<uint8_t>((255 - ink[i % 3]) * (255 - ink[3]) / 255.0 + 0.5);
  }
  for (const bool adobe : {true, false}) {  // inverted YCCK, and plain CMYK
    const Bytes file = make_jpeg(inks, {.quality = 100, .adobe_inks = adobe});
    EXPECT_EQ(image_info(file, "inks").channels, 4);
    EXPECT_LE(difference(decode_image(file, "inks"), expected), 5) << adobe;
  }
}

TEST(ImageFile, PngOfEveryKind) {
  const Picture picture = smooth_picture(33, 21);
  EXPECT_EQ(difference(decode_image(make_png(picture), "png"), picture), 0);
  EXPECT_EQ(difference(decode_image(make_png(picture, {.interlaced = true}), "png"), picture), 0);

  // 16 bits are rounded, not cut: 0x12ff is nearer to 0x13.
  Picture wide{2, 1, 1, {0x12, 0xff, 0x12, 0x10}};
  const Tensor rounded = decode_image(make_png(wide, {.sixteen = true}), "png", 1);
  EXPECT_EQ(rounded.to_vector<int64_t>(), (std::vector<int64_t>{0x13, 0x12}));

  const Picture bits{4, 1, 1, {0, 1, 2, 3}};
  EXPECT_EQ(decode_image(make_png(bits, {.bits = 2}), "png", 1).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 85, 170, 255}));

  const Picture indices{3, 1, 1, {2, 0, 1}};
  const PngKind palette{
      .palette = true, .colours = {10, 20, 30, 40, 50, 60, 70, 80, 90}, .transparent = true};
  EXPECT_EQ(decode_image(make_png(indices, palette), "png").to_vector<int64_t>(),
            (std::vector<int64_t>{70, 10, 40, 80, 20, 50, 90, 30, 60}));

  // Alpha is dropped: colours are as they are stored.
  const Picture clear{2, 1, 4, {1, 2, 3, 0, 4, 5, 6, 255}};
  EXPECT_EQ(decode_image(make_png(clear), "png").to_vector<int64_t>(),
            (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  const Picture grey_clear{2, 1, 2, {7, 0, 8, 255}};
  EXPECT_EQ(decode_image(make_png(grey_clear), "png", 1).to_vector<int64_t>(),
            (std::vector<int64_t>{7, 8}));
}

TEST(ImageFile, TurnsAsExifSays) {
  const Picture shown = smooth_picture(40, 24);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Picture stored = test::stored_as(shown, orientation);
    const Bytes png = make_png(stored, {.orientation = orientation});
    EXPECT_EQ(image_info(png, "png").orientation, orientation);
    EXPECT_EQ(difference(decode_image(png, "png"), shown), 0) << orientation;
    for (const bool little : {false, true}) {
      const Bytes jpeg = make_jpeg(stored, {.quality = 100,
                                            .sampling_x = 1,
                                            .sampling_y = 1,
                                            .orientation = orientation,
                                            .little_endian = little});
      EXPECT_EQ(image_info(jpeg, "jpeg").width, 40);
      EXPECT_LE(difference(decode_image(jpeg, "jpeg"), shown), 4) << orientation;
    }
  }
  // Nonsense in the tag turns nothing.
  EXPECT_EQ(image_info(make_jpeg(shown, {.orientation = 9}), "jpeg").orientation, 1);
}

// What is decoded of a part is what the whole has there, whatever the sampling and the borders.
TEST(ImageFile, PartsAreThoseOfTheWhole) {
  const Picture picture = smooth_picture(83, 71);
  struct Kind {
    int x, y;
    bool progressive;
  };
  std::vector<uint8_t> whole;
  std::vector<uint8_t> part;
  for (const Kind kind : {Kind{1, 1, false},
                          {2, 1, false},
                          {2, 2, false},
                          {1, 2, false},
                          {2, 2, true},
                          {4, 1, false}}) {
    const Bytes file = make_jpeg(picture, {.quality = 80,
                                           .sampling_x = kind.x,
                                           .sampling_y = kind.y,
                                           .progressive = kind.progressive});
    detail::JpegReader reader;
    for (const int64_t scale : {1, 2, 4, 8}) {
      reader.open(file, "all", kMaxPixels);
      const detail::DecodedBox all = reader.read({0, 0, 83, 71}, scale, 3, whole);
      for (int64_t i = 0; i < 40; ++i) {
        const int64_t x = i * 13 % 70;
        const int64_t y = i * 29 % 60;
        const detail::PixelBox box{x, y, 1 + i * 7 % (83 - x), 1 + i * 11 % (71 - y)};
        reader.open(file, "part", kMaxPixels);
        const detail::DecodedBox got = reader.read(box, scale, 3, part);
        const int64_t right = (box.x + box.width + scale - 1) / scale;
        const int64_t bottom = (box.y + box.height + scale - 1) / scale;
        ASSERT_LE(got.box.x, box.x / scale);
        ASSERT_GE(got.box.x + got.box.width, right);
        for (int64_t row = box.y / scale; row < bottom; ++row) {
          const auto* a =
              part.data() + (row - got.box.y) * got.stride + (box.x / scale - got.box.x) * 3;
          const auto* b = whole.data() + row * all.stride + box.x / scale * 3;
          ASSERT_TRUE(std::equal(a, a + (right - box.x / scale) * 3, b))
              << "sampling " << kind.x << "×" << kind.y << ", scale " << scale << ", box " << box.x
              << "," << box.y << " " << box.width << "×" << box.height << ", row " << row;
        }
      }
    }
  }
}

TEST(ImageFile, WhatIsBrokenIsNamed) {
  const auto error_of = [](const Bytes& file) {
    return test::error_of([&] { decode_image(file, "shelf/a.jpg"); });
  };
  EXPECT_THAT(error_of({}),
              HasSubstr("shelf/a.jpg: expected a JPEG or PNG image, got an empty file"));
  EXPECT_THAT(error_of(test::bytes_of("GIF89a, or a letter")), HasSubstr("got other data"));
  for (const bool progressive : {false, true}) {
    const Bytes jpeg = make_jpeg(smooth_picture(64, 64), {.progressive = progressive});
    for (size_t size = 3; size < jpeg.size(); size += 7) {
      const Bytes cut(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THAT(error_of(cut), HasSubstr("shelf/a.jpg at byte")) << size;
    }
  }
  for (const bool interlaced : {false, true}) {
    const Bytes png = make_png(smooth_picture(64, 64), {.interlaced = interlaced});
    for (size_t size = 8; size < png.size(); size += 97) {
      const Bytes cut(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THAT(error_of(cut), HasSubstr("shelf/a.jpg at byte")) << size;
    }
    Bytes damaged = png;
    damaged[png.size() / 2] ^= std::byte{1};
    EXPECT_THAT(error_of(damaged), HasSubstr("shelf/a.jpg at byte"));
  }
}

TEST(ImageFile, SizesAreCheckedBeforeMemoryIsTaken) {
  const Bytes jpeg = make_jpeg(smooth_picture(64, 64));
  const Bytes png = make_png(smooth_picture(64, 64));
  for (const Bytes& file : {jpeg, png}) {
    EXPECT_NO_THROW(decode_image(file, "a", 3, 64 * 64));
    EXPECT_THAT(test::error_of([&] { decode_image(file, "a", 3, 64 * 64 - 1); }),
                HasSubstr("expected at most 4095 pixels, got 64 × 64"));
  }
}

// A decoder is used again after a file it gave up on.
TEST(ImageFile, ReaderGoesOnAfterABrokenFile) {
  const Picture picture = smooth_picture(40, 30);
  const Bytes good = make_jpeg(picture);
  Bytes bad = good;
  for (size_t i = good.size() / 2; i < good.size() - 8; ++i)
    bad[i] = std::byte{0x55};
  bad[good.size() / 2] = std::byte{0xff};
  bad[good.size() / 2 + 1] = std::byte{0xd3};
  const Bytes png = make_png(picture);
  const Bytes bad_png(png.begin(), png.end() - 40);
  detail::ImageReader reader;
  const detail::Cut all{{0, 0, 40, 30}, {0, 0, 40, 30}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(
        {
          reader.open(bad, "bad", kMaxPixels);
          reader.read(all, 30, 40, 3);
        },
        Error);
    EXPECT_THROW(reader.open(bad_png, "bad", kMaxPixels), Error);
    for (const Bytes& file : {good, png}) {
      reader.open(file, "good", kMaxPixels);
      const detail::PixelView view = reader.read(all, 30, 40, 3);
      EXPECT_EQ(view.width, 40);
      EXPECT_NEAR(view.data[0], picture.at(0, 0, 0), 12);
    }
  }
}

TEST(ImageFile, EncodesJpeg) {
  const Picture picture = smooth_picture(50, 40);
  const Tensor image = decode_image(make_png(picture), "png");
  EXPECT_LE(difference(decode_image(encode_jpeg(image, 98), "jpeg"), picture), 8);
  const Tensor grey = decode_image(make_png(picture), "png", 1);
  EXPECT_EQ(image_info(encode_jpeg(grey), "jpeg").channels, 1);
  EXPECT_LT(encode_jpeg(image, 30).size(), encode_jpeg(image, 95).size());
  EXPECT_THROW(encode_jpeg(image, 0), Error);
  EXPECT_THROW(encode_jpeg(empty({2, 3, 3}, {.dtype = u8})), Error);
}

}  // namespace
}  // namespace weft::data
