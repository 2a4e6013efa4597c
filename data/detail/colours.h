// Changes of colour, in place, on interleaved pixels of f32 in units of bytes; results are cut to
// [0, 255]. Grey is 0.299 red + 0.587 green + 0.114 blue (ITU-R BT.601).
#pragma once

#include <cstdint>

namespace weft::data::detail {

inline float grey_of(float red, float green, float blue) {
  return 0.299f * red + 0.587f * green + 0.114f * blue;
}

// `count` values.
void brighten(float* values, int64_t count, float factor);
// `count` pixels, to and from the mean grey of the picture.
void change_contrast(float* pixels, int64_t count, int64_t channels, float factor);
// `count` pixels of three channels, to and from their grey.
void saturate(float* pixels, int64_t count, float factor);
// `count` pixels of three channels; `turn` in circles.
void turn_hue(float* pixels, int64_t count, float turn);

}  // namespace weft::data::detail
