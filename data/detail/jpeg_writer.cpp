// Errors jump, as in jpeg.cpp.
#include "data/detail/jpeg_writer.h"

#include "core/error.h"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

// Needs <cstdio> before it.
#include <jpeglib.h>

namespace weft::data::detail {
namespace {

struct Writer {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  unsigned char* bytes = nullptr;  // of libjpeg's malloc
  unsigned long size = 0;

  const uint8_t* pixels = nullptr;
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;
  int quality = 0;

  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
};

void on_error(j_common_ptr common) {
  Writer& writer = *static_cast<Writer*>(common->client_data);
  common->err->format_message(common, writer.message.data());
  std::longjmp(writer.back, 1);
}

void write(Writer& writer) {
  jpeg_compress_struct& info = writer.info;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &writer.bytes, &writer.size);
  info.image_width = static_cast<JDIMENSION>(writer.width);
  info.image_height = static_cast<JDIMENSION>(writer.height);
  info.input_components = static_cast<int>(writer.channels);
  info.in_color_space = writer.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, writer.quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const uint8_t* line = writer.pixels + info.next_scanline * writer.width * writer.channels;
    auto* row = const_cast<JSAMPROW>(line);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
}

bool guarded(Writer& writer) {
  if (setjmp(writer.back) != 0) return false;
  write(writer);
  return true;
}

}  // namespace

std::vector<std::byte> write_jpeg(const uint8_t* pixels, int64_t width, int64_t height,
                                  int64_t channels, int quality) {
  Writer writer;
  writer.info.err = jpeg_std_error(&writer.errors);
  writer.errors.error_exit = on_error;
  writer.errors.output_message = [](j_common_ptr) {};
  writer.info.client_data = &writer;
  writer.pixels = pixels;
  writer.width = width;
  writer.height = height;
  writer.channels = channels;
  writer.quality = quality;
  WEFT_CHECK(guarded(writer), "jpeg", "expected to write ", width, " × ", height, " pixels, got '",
             writer.message.data(), "'");
  const auto* bytes = reinterpret_cast<const std::byte*>(writer.bytes);
  return {bytes, bytes + writer.size};
}

}  // namespace weft::data::detail
