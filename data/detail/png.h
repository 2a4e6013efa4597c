// PNG by libpng: the header first, then the rows that are wanted.
#pragma once

#include "data/detail/jpeg.h"

namespace weft::data::detail {

// Used as JpegReader is. 16 bits become 8 by rounding, palettes and few bits become whole bytes,
// alpha is dropped, gamma and colour profiles are left alone.
class PngReader {
 public:
  PngReader();
  ~PngReader();
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  StoredImage open(std::span<const std::byte> bytes, const std::string& name, int64_t max_pixels);
  DecodedBox read(const PixelBox& box, int64_t channels, std::vector<uint8_t>& pixels);

 private:
  struct State;
  [[noreturn]] void fail() const;
  std::unique_ptr<State> state_;
};

bool is_png(std::span<const std::byte> bytes);
bool is_jpeg(std::span<const std::byte> bytes);

}  // namespace weft::data::detail
