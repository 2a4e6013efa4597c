// libjpeg reports errors through a function that must not return. Ours jumps back (longjmp) to
// guarded(), over frames of libjpeg and of the static functions here that it calls; none of these
// holds an object with a destructor, and what they allocate belongs to the State. Only then is a
// C++ exception thrown.
#include "data/detail/jpeg.h"

#include "data/detail/colours.h"
#include "data/detail/file.h"
#include "data/detail/orientation.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

// Needs <cstdio> before it.
#include <jpeglib.h>
// Needs jpeglib.h before it.
#include <jerror.h>

#ifndef LIBJPEG_TURBO_VERSION
#error "expected libjpeg-turbo (libjpeg62-turbo-dev), which can decode a part of an image"
#endif

namespace weft::data::detail {
namespace {

constexpr const char* kJpeg = "jpeg";
constexpr int kMostScans = 500;  // real files have a dozen; each costs a pass over the picture
constexpr JDIMENSION kRowsAtOnce = 16;
// The colours of a pixel depend on its neighbours' within this distance.
constexpr int64_t kReach = 2;

}  // namespace

struct JpegReader::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};

  std::span<const std::byte> bytes;
  std::string name;
  StoredImage image;

  // What read() decodes.
  PixelBox box;  // in pixels of 1/scale
  int64_t channels = 3;
  bool inks = false;           // comes as cyan, magenta, yellow, black
  bool inks_inverted = false;  // as Adobe's programs write them
  bool no_memory = false;      // why it has failed
  std::vector<uint8_t>* pixels = nullptr;
  int64_t stride = 0;  // of a row of pixels
  std::vector<uint8_t> ink_row;

  static State& of(j_common_ptr common) { return *static_cast<State*>(common->client_data); }
  static void on_error(j_common_ptr common);
  static void on_message(j_common_ptr common, int level);
  static void on_progress(j_common_ptr common);

  bool guarded(void (*step)(State&));
  static void create(State& state);
  static void read_header(State& state);
  static void start(State& state);
  static void read_rows(State& state);
  static void abort(State& state) { jpeg_abort_decompress(&state.info); }

  void convert_inks(uint8_t* to) const;
  int exif_orientation() const;
};

void JpegReader::State::on_error(j_common_ptr common) {
  State& state = of(common);
  common->err->format_message(common, state.message.data());
  state.no_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
  std::longjmp(state.back, 1);
}

// Warnings have a level below 0. Those that tell of lost pixels are errors here; others, like bytes
// too many before a marker, are not.
void JpegReader::State::on_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  switch (common->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      on_error(common);
      break;
    default:
      ++common->err->num_warnings;
  }
}

void JpegReader::State::on_progress(j_common_ptr common) {
  State& state = of(common);
  if (state.info.input_scan_number <= kMostScans) return;
  std::snprintf(state.message.data(), state.message.size(), "more than %d scans", kMostScans);
  state.no_memory = false;
  std::longjmp(state.back, 1);
}

bool JpegReader::State::guarded(void (*step)(State&)) {
  if (setjmp(back) != 0) return false;
  step(*this);
  return true;
}

void JpegReader::State::create(State& state) {
  jpeg_create_decompress(&state.info);
  jpeg_save_markers(&state.info, JPEG_APP0 + 1, 0xffff);
}

void JpegReader::State::read_header(State& state) {
  jpeg_mem_src(&state.info, reinterpret_cast<const unsigned char*>(state.bytes.data()),
               static_cast<unsigned long>(state.bytes.size()));
  state.info.progress = &state.progress;
  jpeg_read_header(&state.info, TRUE);
}

void JpegReader::State::start(State& state) {
  jpeg_start_decompress(&state.info);
  const int64_t width = state.info.output_width;
  const int64_t first = std::max<int64_t>(state.box.x - kReach, 0);
  JDIMENSION x = static_cast<JDIMENSION>(first);
  JDIMENSION count =
      static_cast<JDIMENSION>(std::min(state.box.x + state.box.width + kReach, width) - first);
  // Gives the columns of whole blocks around those asked for.
  if (count < width) jpeg_crop_scanline(&state.info, &x, &count);
  state.box.x = x;
  state.box.width = count;
}

void JpegReader::State::read_rows(State& state) {
  jpeg_decompress_struct& info = state.info;
  if (state.box.y > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(state.box.y));
  uint8_t* to = state.pixels->data();
  std::array<JSAMPROW, kRowsAtOnce> rows{};
  auto left = static_cast<JDIMENSION>(state.box.height);
  while (left > 0) {
    const JDIMENSION wanted = state.inks ? 1 : std::min(left, kRowsAtOnce);
    for (JDIMENSION i = 0; i < wanted; ++i)
      rows[i] = state.inks ? state.ink_row.data() : to + i * state.stride;
    const JDIMENSION got = jpeg_read_scanlines(&info, rows.data(), wanted);
    if (got == 0) ERREXIT(&info, JERR_INPUT_EMPTY);
    if (state.inks) state.convert_inks(to);
    to += got * state.stride;
    left -= got;
  }
  jpeg_abort_decompress(&info);
}

// Light that is left: (1 - ink) (1 - black). Adobe's programs store 1 - ink.
void JpegReader::State::convert_inks(uint8_t* to) const {
  for (int64_t x = 0; x < box.width; ++x) {
    std::array<int, 4> light{};
    for (size_t c = 0; c < 4; ++c) {
      const int value = ink_row[4 * static_cast<size_t>(x) + c];
      light[c] = inks_inverted ? value : 255 - value;
    }
    std::array<int, 3> colour{};
    for (size_t c = 0; c < 3; ++c)
      colour[c] = (light[c] * light[3] + 127) / 255;
    if (channels == 1) {
      to[x] =
          static_cast<uint8_t>(grey_of(static_cast<float>(colour[0]), static_cast<float>(colour[1]),
                                       static_cast<float>(colour[2])) +
                               0.5f);
    } else {
      for (int64_t c = 0; c < 3; ++c)
        to[3 * x + c] = static_cast<uint8_t>(colour[static_cast<size_t>(c)]);
    }
  }
}

int JpegReader::State::exif_orientation() const {
  constexpr size_t kPrefix = 6;
  for (const jpeg_marker_struct* marker = info.marker_list; marker; marker = marker->next) {
    if (marker->data_length < kPrefix || std::memcmp(marker->data, "Exif\0", kPrefix) != 0)
      continue;
    return orientation_tag({reinterpret_cast<const std::byte*>(marker->data) + kPrefix,
                            marker->data_length - kPrefix});
  }
  return 1;
}

JpegReader::JpegReader() : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.info.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = State::on_error;
  state.errors.emit_message = State::on_message;
  state.errors.output_message = [](j_common_ptr) {};
  state.progress.progress_monitor = State::on_progress;
  state.info.client_data = state_.get();
  if (!state.guarded(State::create)) {
    jpeg_destroy_decompress(&state.info);
    throw_error(kJpeg, {"libjpeg does not start: ", state.message.data()});
  }
}

JpegReader::~JpegReader() {
  jpeg_destroy_decompress(&state_->info);
}

void JpegReader::fail() const {
  State& state = *state_;
  const size_t left = state.info.src ? state.info.src->bytes_in_buffer : 0;
  const size_t at = state.bytes.size() - std::min(left, state.bytes.size());
  const std::string message = state.message.data();
  const bool no_memory = state.no_memory;
  state.guarded(State::abort);
  if (no_memory) throw OutOfResources(concat({"[", kJpeg, "] ", state.name, ": ", message}));
  throw_error(kJpeg,
              {state.name, " at byte ", at, ": expected a sound JPEG image, got '", message, "'"});
}

StoredImage JpegReader::open(std::span<const std::byte> bytes, const std::string& name,
                             int64_t max_pixels) {
  State& state = *state_;
  state.guarded(State::abort);  // what an earlier file has left
  state.bytes = bytes;
  state.name = name;
  state.image = {};
  if (!state.guarded(State::read_header)) fail();
  const jpeg_decompress_struct& info = state.info;
  state.image = {info.image_width, info.image_height, info.num_components,
                 state.exif_orientation()};
  const StoredImage& image = state.image;
  WEFT_CHECK(image.width <= max_pixels / image.height, kJpeg, name, ": expected at most ",
             max_pixels, " pixels, got ", image.width, " × ", image.height);
  WEFT_CHECK(info.jpeg_color_space != JCS_UNKNOWN && image.channels != 2, kJpeg, name,
             ": expected grey, colours or four inks, got ", image.channels, " components");
  // An image that ends too early is found whatever part of it is wanted: in its data, 0xff 0xd9
  // stands nowhere but at the end.
  const auto data = bytes.subspan(bytes.size() - info.src->bytes_in_buffer);
  size_t end = data.size();
  while (end >= 2 && !(data[end - 1] == std::byte{0xd9} && data[end - 2] == std::byte{0xff}))
    --end;
  WEFT_CHECK(end >= 2, kJpeg, name, " at byte ", bytes.size(),
             ": expected the end of the image, got the end of the file");
  return image;
}

DecodedBox JpegReader::read(const PixelBox& box, int64_t scale, int64_t channels,
                            std::vector<uint8_t>& pixels) {
  State& state = *state_;
  jpeg_decompress_struct& info = state.info;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(scale);
  state.inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  state.inks_inverted = info.saw_Adobe_marker == TRUE;
  if (state.inks) {
    info.out_color_space = JCS_CMYK;
  } else {
    info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  }
  const int64_t right = (box.x + box.width + scale - 1) / scale;
  const int64_t bottom = (box.y + box.height + scale - 1) / scale;
  state.box.x = box.x / scale;
  state.box.y = box.y / scale;
  state.box.width = right - state.box.x;
  state.box.height = bottom - state.box.y;
  state.channels = channels;
  state.pixels = &pixels;
  if (!state.guarded(State::start)) fail();
  state.stride = state.box.width * channels;
  const auto needed = static_cast<size_t>(state.stride * state.box.height);
  if (pixels.size() < needed) pixels.resize(needed);
  if (state.inks) state.ink_row.resize(4 * static_cast<size_t>(state.box.width));
  if (!state.guarded(State::read_rows)) fail();
  return {state.box, state.stride, scale};
}

}  // namespace weft::data::detail
