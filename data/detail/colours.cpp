#include "data/detail/colours.h"

#include <algorithm>
#include <cmath>

namespace weft::data::detail {
namespace {

float byte_range(float value) {
  return std::clamp(value, 0.0f, 255.0f);
}

}  // namespace

void brighten(float* values, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = byte_range(values[i] * factor);
}

void change_contrast(float* pixels, int64_t count, int64_t channels, float factor) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float* pixel = pixels + i * channels;
    sum += static_cast<double>(channels == 3 ? grey_of(pixel[0], pixel[1], pixel[2]) : pixel[0]);
  }
  const float rest = (1 - factor) * static_cast<float>(sum / static_cast<double>(count));
  for (int64_t i = 0; i < count * channels; ++i)
    pixels[i] = byte_range(pixels[i] * factor + rest);
}

void saturate(float* pixels, int64_t count, float factor) {
  for (float* pixel = pixels; pixel != pixels + 3 * count; pixel += 3) {
    const float rest = (1 - factor) * grey_of(pixel[0], pixel[1], pixel[2]);
    for (int c = 0; c < 3; ++c)
      pixel[c] = byte_range(pixel[c] * factor + rest);
  }
}

// By way of hue, saturation, value (Smith, "Color gamut transform pairs", SIGGRAPH 1978). With h in
// sixths of the circle, a channel is v - v s max(0, min(k, 4 - k, 1)), k = (n + h) mod 6 and n = 5,
// 3, 1 for red, green, blue.
void turn_hue(float* pixels, int64_t count, float turn) {
  for (float* pixel = pixels; pixel != pixels + 3 * count; pixel += 3) {
    const float red = pixel[0];
    const float green = pixel[1];
    const float blue = pixel[2];
    const float most = std::max({red, green, blue});
    const float chroma = most - std::min({red, green, blue});
    if (chroma <= 0) continue;  // grey has no hue
    float sixths = 0;
    if (most == red) {
      sixths = (green - blue) / chroma;
    } else if (most == green) {
      sixths = (blue - red) / chroma + 2;
    } else {
      sixths = (red - green) / chroma + 4;
    }
    sixths += 6 * turn;
    for (int c = 0; c < 3; ++c) {
      float k = static_cast<float>(5 - 2 * c) + sixths;
      k -= 6 * std::floor(k / 6);
      pixel[c] = most - chroma * std::max(0.0f, std::min({k, 4 - k, 1.0f}));
    }
  }
}

}  // namespace weft::data::detail
