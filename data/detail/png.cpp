// libpng reports errors as libjpeg does: see jpeg.cpp, whose rules hold here, too.
#include "data/detail/png.h"

#include "data/detail/colours.h"
#include "data/detail/file.h"
#include "data/detail/orientation.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::data::detail {
namespace {

constexpr const char* kPng = "png";
constexpr size_t kSignature = 8;
constexpr size_t kChunkFrame = 12;  // length, type, checksum
// Deflate expands to at most so many times its input (zlib's technical notes).
constexpr int64_t kDeflateRatio = 1032;

uint32_t big_endian(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value = value << 8 | std::to_integer<uint32_t>(at[i]);
  return value;
}

}  // namespace

struct PngReader::State {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf back{};
  std::array<char, 256> message{};

  std::span<const std::byte> bytes;
  size_t at = 0;
  std::string name;
  StoredImage image;

  PixelBox box;
  int64_t channels = 3;
  int passes = 1;
  size_t row_bytes = 0;
  std::vector<uint8_t> rows;  // one, or all of an interlaced picture
  bool no_memory = false;     // has been found while this file was read
  std::vector<uint8_t>* pixels = nullptr;

  static void on_error(png_structp png, png_const_charp message);
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t count);
  static png_voidp on_allocate(png_structp png, png_alloc_size_t bytes);
  static void on_free(png_structp, png_voidp memory) { std::free(memory); }

  bool guarded(void (*step)(State&));
  static void create(State& state);
  static void read_header(State& state);
  static void start(State& state);
  static void read_rows(State& state);

  void close() { png_destroy_read_struct(&png, &info, nullptr); }
  void keep(const uint8_t* row, int64_t y) const;
  void walk_chunks();
};

void PngReader::State::on_error(png_structp png, png_const_charp message) {
  State& state = *static_cast<State*>(png_get_error_ptr(png));
  std::snprintf(state.message.data(), state.message.size(), "%s", message);
  std::longjmp(state.back, 1);
}

void PngReader::State::on_read(png_structp png, png_bytep to, size_t count) {
  State& state = *static_cast<State*>(png_get_io_ptr(png));
  if (state.bytes.size() - state.at < count) png_error(png, "the end of the file");
  std::memcpy(to, state.bytes.data() + state.at, count);
  state.at += count;
}

png_voidp PngReader::State::on_allocate(png_structp png, png_alloc_size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) static_cast<State*>(png_get_mem_ptr(png))->no_memory = true;
  return memory;
}

bool PngReader::State::guarded(void (*step)(State&)) {
  if (setjmp(back) != 0) return false;
  step(*this);
  return true;
}

void PngReader::State::create(State& state) {
  state.no_memory = false;
  state.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning, &state,
                                       on_allocate, on_free);
  if (state.png) state.info = png_create_info_struct(state.png);
}

void PngReader::State::read_header(State& state) {
  png_set_read_fn(state.png, &state, on_read);
  // Text, profiles and the like are of no use here: -1 stands for all of them.
  png_set_keep_unknown_chunks(state.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(state.png, state.info);
}

void PngReader::State::start(State& state) {
  png_set_expand(state.png);
  png_set_scale_16(state.png);
  png_set_strip_alpha(state.png);
  if (state.channels == 3) png_set_gray_to_rgb(state.png);
  state.passes = png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  state.row_bytes = png_get_rowbytes(state.png, state.info);
}

void PngReader::State::read_rows(State& state) {
  const int64_t end = state.box.y + state.box.height;
  if (state.passes == 1) {
    for (int64_t y = 0; y < end; ++y) {
      png_read_row(state.png, state.rows.data(), nullptr);
      state.keep(state.rows.data(), y);
    }
    return;
  }
  for (int pass = 0; pass < state.passes; ++pass) {
    for (int64_t y = 0; y < state.image.height; ++y)
      png_read_row(state.png, state.rows.data() + static_cast<size_t>(y) * state.row_bytes,
                   nullptr);
  }
  for (int64_t y = state.box.y; y < end; ++y)
    state.keep(state.rows.data() + static_cast<size_t>(y) * state.row_bytes, y);
}

// Copies what is wanted of a row, in as many channels as are.
void PngReader::State::keep(const uint8_t* row, int64_t y) const {
  if (y < box.y) return;
  uint8_t* to = pixels->data() + (y - box.y) * box.width * channels;
  const auto given = static_cast<int64_t>(row_bytes) / image.width;
  const uint8_t* from = row + box.x * given;
  if (given == channels) {
    std::memcpy(to, from, static_cast<size_t>(box.width * channels));
    return;
  }
  for (int64_t x = 0; x < box.width; ++x, from += 3)
    to[x] = static_cast<uint8_t>(grey_of(from[0], from[1], from[2]) + 0.5f);
}

// Finds the end of the image, so that one that ends too early is found whatever part of it is
// wanted; and the orientation, which may stand behind the pixels.
void PngReader::State::walk_chunks() {
  size_t offset = kSignature;
  while (bytes.size() - offset >= kChunkFrame) {
    const uint32_t length = big_endian(bytes.data() + offset);
    if (length > bytes.size() - offset - kChunkFrame) break;
    const std::byte* type = bytes.data() + offset + 4;
    if (std::memcmp(type, "IEND", 4) == 0) return;
    if (std::memcmp(type, "eXIf", 4) == 0)
      image.orientation = orientation_tag(bytes.subspan(offset + 8, length));
    offset += kChunkFrame + length;
  }
  throw_error(kPng, {name, " at byte ", bytes.size(),
                     ": expected the end of the image, got the end of the file"});
}

PngReader::PngReader() : state_(std::make_unique<State>()) {}

PngReader::~PngReader() {
  state_->close();
}

void PngReader::fail() const {
  State& state = *state_;
  state.close();
  if (state.no_memory)
    throw OutOfResources(concat({"[", kPng, "] ", state.name, ": ", state.message.data()}));
  throw_error(kPng, {state.name, " at byte ", state.at, ": expected a sound PNG image, got '",
                     state.message.data(), "'"});
}

StoredImage PngReader::open(std::span<const std::byte> bytes, const std::string& name,
                            int64_t max_pixels) {
  State& state = *state_;
  state.close();
  state.bytes = bytes;
  state.at = 0;
  state.name = name;
  state.image = {};
  const bool made = state.guarded(State::create) && state.png && state.info;
  WEFT_CHECK(made, kPng, "libpng does not start");
  if (!state.guarded(State::read_header)) fail();
  state.image = {png_get_image_width(state.png, state.info),
                 png_get_image_height(state.png, state.info),
                 png_get_channels(state.png, state.info), 1};
  const StoredImage& image = state.image;
  WEFT_CHECK(image.width <= max_pixels / image.height, kPng, name, ": expected at most ",
             max_pixels, " pixels, got ", image.width, " × ", image.height);
  const auto stored = static_cast<int64_t>(png_get_rowbytes(state.png, state.info)) * image.height;
  WEFT_CHECK(stored / kDeflateRatio <= static_cast<int64_t>(bytes.size()), kPng, name,
             ": expected data for ", image.width, " × ", image.height, " pixels, got ",
             bytes.size(), " bytes");
  state.walk_chunks();
  return image;
}

DecodedBox PngReader::read(const PixelBox& box, int64_t channels, std::vector<uint8_t>& pixels) {
  State& state = *state_;
  state.box = box;
  state.channels = channels;
  state.pixels = &pixels;
  if (!state.guarded(State::start)) fail();
  const size_t held = state.passes == 1 ? 1 : static_cast<size_t>(state.image.height);
  state.rows.resize(held * state.row_bytes);
  const auto needed = static_cast<size_t>(box.width * box.height * channels);
  if (pixels.size() < needed) pixels.resize(needed);
  if (!state.guarded(State::read_rows)) fail();
  return {box, box.width * channels, 1};
}

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignature) == 0;
}

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} &&
         bytes[2] == std::byte{0xff};
}

}  // namespace weft::data::detail
