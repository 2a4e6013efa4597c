#include "data/detail/utf8.h"

#include "core/error.h"

#include <cstdint>

namespace weft::data::detail {
namespace {

// The form a first byte announces: how long it is, and the least point that needs it.
struct Form {
  size_t length;
  char32_t least;
  unsigned payload;  // bits of the first byte that belong to the point
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1, 0, 0x7f};
  if (first >= 0xc2 && first < 0xe0) return {2, 0x80, 0x1f};
  if (first >= 0xe0 && first < 0xf0) return {3, 0x800, 0x0f};
  if (first >= 0xf0 && first < 0xf5) return {4, 0x10000, 0x07};
  return {0, 0, 0};
}

}  // namespace

std::vector<char32_t> decode_utf8(std::string_view text, const std::string& name) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const Form form = form_of(first);
    bool sound = form.length > 0 && at + form.length <= text.size();
    char32_t point = first & form.payload;
    for (size_t i = 1; sound && i < form.length; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      sound = (next & 0xc0) == 0x80;
      point = point << 6 | (next & 0x3f);
    }
    sound = sound && point >= form.least && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
    WEFT_CHECK(sound, "text", "expected UTF-8 in ", name, ", got other bytes at ", at,
               " (byte level takes any file)");
    points.push_back(point);
    at += form.length;
  }
  return points;
}

std::string encode_utf8(char32_t point) {
  const auto tail = [point](int shift) {
    return static_cast<char>(0x80 | (point >> shift & 0x3f));
  };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xc0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xe0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | point >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace weft::data::detail
