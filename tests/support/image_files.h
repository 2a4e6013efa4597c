// Small image files of every kind, made by libjpeg and libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::test {

using Bytes = std::vector<std::byte>;

// Interleaved values, row by row.
struct Picture {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<uint8_t> values;

  uint8_t at(int x, int y, int c) const {
    return values[static_cast<size_t>((y * width + x) * channels + c)];
  }
};

// Smooth, without symmetry: no two of its eight orientations look alike.
Picture smooth_picture(int width, int height, int channels = 3);

// The picture as a file of this EXIF orientation holds it, by the standard's words.
Picture stored_as(const Picture& shown, int orientation);

struct JpegKind {
  int quality = 95;
  int sampling_x = 2;  // colours at half the columns, half the rows
  int sampling_y = 2;
  bool progressive = false;
  int restart = 0;      // blocks between restart markers
  int orientation = 0;  // 0: no EXIF
  bool little_endian = false;
  bool rgb = false;        // stored as red, green, blue
  bool adobe_inks = true;  // four channels: inverted, with Adobe's marker
};
// 1, 3 or 4 channels; four are cyan, magenta, yellow, black.
Bytes make_jpeg(const Picture& picture, const JpegKind& kind = {});

struct PngKind {
  bool interlaced = false;
  int orientation = 0;
  bool sixteen = false;  // values come as pairs of bytes, high first
  int bits = 8;          // below 8: grey
  bool palette = false;  // values are indices, colours[3 * i …] what they stand for
  std::vector<uint8_t> colours = {};
  bool transparent = false;  // index 0
};
// 1, 2 (grey, alpha), 3 or 4 (colours, alpha) channels.
Bytes make_png(const Picture& picture, const PngKind& kind = {});

void write_file(const std::string& path, const Bytes& bytes);
Bytes bytes_of(const std::string& text);

}  // namespace weft::test
