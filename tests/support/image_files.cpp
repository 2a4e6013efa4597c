#include "tests/support/image_files.h"

#include <png.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

// Needs <cstdio> before it.
#include <jpeglib.h>

namespace weft::test {
namespace {

// A TIFF structure with one entry, the orientation.
std::vector<uint8_t> exif_of(int orientation, bool little_endian) {
  std::vector<uint8_t> bytes;
  const auto put = [&](unsigned value, int width) {
    for (int i = 0; i < width; ++i)
      bytes.push_back(static_cast<uint8_t>(value >> 8 * (little_endian ? i : width - 1 - i)));
  };
  bytes.assign(2, little_endian ? 'I' : 'M');
  put(42, 2);
  put(8, 4);
  put(1, 2);
  put(0x0112, 2);
  put(3, 2);
  put(1, 4);
  put(static_cast<unsigned>(orientation), 2);
  put(0, 2);
  put(0, 4);
  return bytes;
}

}  // namespace

Picture smooth_picture(int width, int height, int channels) {
  Picture picture{width, height, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = std::sin(0.11 * x + 0.05 * y * (c + 1)) + std::cos(0.07 * y - 0.9 * c);
        const double slope = 60.0 * x / width + 40.0 * y * y / (1.0 * height * height);
        picture.values.push_back(static_cast<uint8_t>(70 + slope + 25 * wave));
      }
    }
  }
  return picture;
}

// "The 0th row represents the visual …, and the 0th column the visual …".
Picture stored_as(const Picture& shown, int orientation) {
  const bool rows_are_columns = orientation >= 5;
  const bool row_from_end = orientation == 3 || orientation == 4 || orientation == 6 ||
                            orientation == 7;  // bottom; right-hand side
  const bool column_from_end = orientation == 2 || orientation == 3 || orientation == 7 ||
                               orientation == 8;  // right-hand side; bottom
  Picture stored = shown;
  if (rows_are_columns) std::swap(stored.width, stored.height);
  for (int row = 0; row < stored.height; ++row) {
    for (int column = 0; column < stored.width; ++column) {
      const int r = row_from_end ? stored.height - 1 - row : row;
      const int k = column_from_end ? stored.width - 1 - column : column;
      for (int c = 0; c < shown.channels; ++c) {
        stored.values[static_cast<size_t>((row * stored.width + column) * shown.channels + c)] =
            rows_are_columns ? shown.at(r, k, c) : shown.at(k, r, c);
      }
    }
  }
  return stored;
}

Bytes make_jpeg(const Picture& picture, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the test program where the test itself is wrong
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = picture.channels == 1   ? JCS_GRAYSCALE
                        : picture.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (kind.rgb) jpeg_set_colorspace(&info, JCS_RGB);
  if (picture.channels == 4) {
    if (kind.adobe_inks) jpeg_set_colorspace(&info, JCS_YCCK);
    info.write_Adobe_marker = kind.adobe_inks ? TRUE : FALSE;
  }
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (picture.channels == 3 && !kind.rgb) {
    info.comp_info[0].h_samp_factor = kind.sampling_x;
    info.comp_info[0].v_samp_factor = kind.sampling_y;
  }
  if (kind.progressive) jpeg_simple_progression(&info);
  info.restart_interval = static_cast<unsigned>(kind.restart);
  jpeg_start_compress(&info, TRUE);
  if (kind.orientation > 0) {
    std::vector<uint8_t> marker = {'E', 'x', 'i', 'f', 0, 0};
    const auto exif = exif_of(kind.orientation, kind.little_endian);
    marker.insert(marker.end(), exif.begin(), exif.end());
    jpeg_write_marker(&info, JPEG_APP0 + 1, marker.data(), static_cast<unsigned>(marker.size()));
  }
  std::vector<uint8_t> line(static_cast<size_t>(picture.width * picture.channels));
  while (info.next_scanline < info.image_height) {
    const uint8_t* from = picture.values.data() + info.next_scanline * line.size();
    for (size_t i = 0; i < line.size(); ++i)
      line[i] =
          picture.channels == 4 && kind.adobe_inks ? static_cast<uint8_t>(255 - from[i]) : from[i];
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(buffer);
  Bytes file(bytes, bytes + size);
  std::free(buffer);
  return file;
}

Bytes make_png(const Picture& picture, const PngKind& kind) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes file;
  const auto write = [](png_structp from, png_bytep bytes, size_t count) {
    auto& to = *static_cast<Bytes*>(png_get_io_ptr(from));
    const auto* at = reinterpret_cast<const std::byte*>(bytes);
    to.insert(to.end(), at, at + count);
  };
  png_set_write_fn(png, &file, write, [](png_structp) {});
  constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                            PNG_COLOR_TYPE_RGB_ALPHA};
  const int type = kind.palette ? PNG_COLOR_TYPE_PALETTE : kTypes[picture.channels - 1];
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), kind.sixteen ? 16 : kind.bits, type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> colours;
  for (size_t i = 0; i + 2 < kind.colours.size(); i += 3)
    colours.push_back({kind.colours[i], kind.colours[i + 1], kind.colours[i + 2]});
  if (kind.palette) png_set_PLTE(png, info, colours.data(), static_cast<int>(colours.size()));
  uint8_t clear = 0;
  if (kind.transparent) png_set_tRNS(png, info, &clear, 1, nullptr);
  auto exif = exif_of(kind.orientation, false);
  if (kind.orientation > 0)
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  png_write_info(png, info);
  if (kind.bits < 8) png_set_packing(png);
  const size_t width =
      static_cast<size_t>(picture.width * picture.channels) * (kind.sixteen ? 2 : 1);
  std::vector<uint8_t> values = picture.values;
  std::vector<png_bytep> rows;
  for (size_t y = 0; y < static_cast<size_t>(picture.height); ++y)
    rows.push_back(values.data() + y * width);
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Bytes bytes_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

}  // namespace weft::test
