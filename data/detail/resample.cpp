// Rows first, then columns: the vertical sum runs over whole lines of bytes and leaves one line of
// f32, from which the horizontal sum takes its pixels, maps and stores them. Three channels go
// through registers of four floats, of which the fourth is overwritten by the next pixel.
#include "data/detail/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace weft::data::detail {
namespace {

typedef float Quad __attribute__((vector_size(16)));

// One rounding where the processor fuses.
inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

inline Quad load(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
}

inline Quad multiply_add(Quad a, Quad b, Quad c) {
#if defined(__FMA__)
  return _mm_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Pixels [start, start + length) of `size`, made into `count`.
void make_taps(int64_t count, double start, double length, int64_t size, bool mirror, Taps& taps) {
  const double scale = length / static_cast<double>(count);
  const double support = std::max(1.0, scale);
  const auto centre_of = [&](int64_t i) {
    return start + (static_cast<double>(mirror ? count - 1 - i : i) + 0.5) * scale;
  };
  // Pixels whose middle lies inside the triangle.
  const auto first_of = [&](double centre) {
    return std::max<int64_t>(0, static_cast<int64_t>(std::ceil(centre - support - 0.5)));
  };
  const auto end_of = [&](double centre) {
    return std::min<int64_t>(size, static_cast<int64_t>(std::floor(centre + support - 0.5)) + 1);
  };
  taps.count = 1;
  for (int64_t i = 0; i < count; ++i)
    taps.count = std::max(taps.count, end_of(centre_of(i)) - first_of(centre_of(i)));
  taps.first.resize(static_cast<size_t>(count));
  taps.weights.resize(static_cast<size_t>(count * taps.count));
  const auto narrow = static_cast<float>(1 / support);
  for (int64_t i = 0; i < count; ++i) {
    const double centre = centre_of(i);
    // All take the same number of pixels, which are there also near the end of the line.
    const int64_t first = std::min(first_of(centre), size - taps.count);
    float* weight = &taps.weights[static_cast<size_t>(i * taps.count)];
    float sum = 0;
    for (int64_t k = 0; k < taps.count; ++k) {
      const auto distance = static_cast<float>(static_cast<double>(first + k) + 0.5 - centre);
      weight[k] = std::max(0.0f, 1 - std::abs(distance) * narrow);
      sum += weight[k];
    }
    for (int64_t k = 0; k < taps.count; ++k)
      weight[k] /= sum;
    taps.first[static_cast<size_t>(i)] = static_cast<int32_t>(first);
  }
}

// line[i] = Σ weight[k] * rows[k][i], or that added to it.
template <int N, bool kAdd>
void blend_rows(const uint8_t* rows, int64_t stride, const float* weights, int64_t count,
                float* __restrict line) {
  int64_t i = 0;
#if defined(__AVX2__) && defined(__FMA__)
  // The compiler's own way from bytes to floats takes twice as many instructions.
  for (; i + 8 <= count; i += 8) {
    __m256 sum = kAdd ? _mm256_loadu_ps(line + i) : _mm256_setzero_ps();
    for (int k = 0; k < N; ++k) {
      const __m128i bytes =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(rows + k * stride + i));
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                            _mm256_set1_ps(weights[k]), sum);
    }
    _mm256_storeu_ps(line + i, sum);
  }
#endif
  for (; i < count; ++i) {
    float sum = kAdd ? line[i] : 0.0f;
    for (int k = 0; k < N; ++k)
      sum = multiply_add(static_cast<float>(rows[k * stride + i]), weights[k], sum);
    line[i] = sum;
  }
}

template <bool kAdd>
void blend_some(int64_t taps, const uint8_t* rows, int64_t stride, const float* weights,
                int64_t count, float* line) {
  switch (taps) {
    case 1:
      return blend_rows<1, kAdd>(rows, stride, weights, count, line);
    case 2:
      return blend_rows<2, kAdd>(rows, stride, weights, count, line);
    case 3:
      return blend_rows<3, kAdd>(rows, stride, weights, count, line);
    default:
      return blend_rows<4, kAdd>(rows, stride, weights, count, line);
  }
}

void blend(int64_t taps, const uint8_t* rows, int64_t stride, const float* weights, int64_t count,
           float* line) {
  blend_some<false>(taps, rows, stride, weights, count, line);
  for (int64_t done = 4; done < taps; done += 4)
    blend_some<true>(taps - done, rows + done * stride, stride, weights + done, count, line);
}

// N taps, or as many as there are.
template <int N>
void gather_quads(const Taps& taps, const float* line, int64_t width, const Affine& values,
                  float* out) {
  const Quad scale = {values.scale[0], values.scale[1], values.scale[2], 0};
  const Quad offset = {values.offset[0], values.offset[1], values.offset[2], 0};
  const int64_t count = N > 0 ? N : taps.count;
  const float* weights = taps.weights.data();
  const auto pixel = [&](int64_t x) {
    const float* from = line + 3 * taps.first[static_cast<size_t>(x)];
    const float* weight = weights + x * count;
    Quad sum{};
    for (int64_t k = 0; k < count; ++k)
      sum = multiply_add(load(from + 3 * k), Quad{weight[k], weight[k], weight[k], weight[k]}, sum);
    return multiply_add(sum, scale, offset);
  };
  for (int64_t x = 0; x + 1 < width; ++x) {
    const Quad value = pixel(x);
    std::memcpy(out + 3 * x, &value, sizeof value);
  }
  // The last pixel may end where another thread's image begins.
  const Quad value = pixel(width - 1);
  std::memcpy(out + 3 * (width - 1), &value, 3 * sizeof(float));
}

void gather_three(const Taps& taps, const float* line, int64_t width, const Affine& values,
                  float* out) {
  switch (taps.count) {
    case 2:
      return gather_quads<2>(taps, line, width, values, out);
    case 3:
      return gather_quads<3>(taps, line, width, values, out);
    case 4:
      return gather_quads<4>(taps, line, width, values, out);
    default:
      return gather_quads<0>(taps, line, width, values, out);
  }
}

void gather_one(const Taps& taps, const float* line, int64_t width, const Affine& values,
                float* out) {
  for (int64_t x = 0; x < width; ++x) {
    const float* from = line + taps.first[static_cast<size_t>(x)];
    const float* weight = &taps.weights[static_cast<size_t>(x * taps.count)];
    float sum = 0;
    for (int64_t k = 0; k < taps.count; ++k)
      sum = multiply_add(from[k], weight[k], sum);
    out[x] = multiply_add(sum, values.scale[0], values.offset[0]);
  }
}

}  // namespace

void resample(const PixelView& view, int64_t height, int64_t width, const Affine& values,
              ResampleScratch& scratch, float* out) {
  make_taps(width, view.box.x, view.box.width, view.width, view.mirror_x, scratch.across);
  make_taps(height, view.box.y, view.box.height, view.height, view.mirror_y, scratch.down);
  // The columns that are needed, and room for a quad at the last pixel.
  const auto [least, most] =
      std::minmax_element(scratch.across.first.begin(), scratch.across.first.end());
  const int64_t first = *least;
  const int64_t count = (*most + scratch.across.count - first) * view.channels;
  for (int32_t& at : scratch.across.first)
    at -= static_cast<int32_t>(first);
  scratch.line.resize(static_cast<size_t>(count) + 4);
  std::fill_n(scratch.line.end() - 4, 4, 0.0f);

  const Taps& down = scratch.down;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* rows =
        view.data + down.first[static_cast<size_t>(y)] * view.stride + first * view.channels;
    blend(down.count, rows, view.stride, &down.weights[static_cast<size_t>(y * down.count)], count,
          scratch.line.data());
    float* to = out + y * width * view.channels;
    if (view.channels == 3) {
      gather_three(scratch.across, scratch.line.data(), width, values, to);
    } else {
      gather_one(scratch.across, scratch.line.data(), width, values, to);
    }
  }
}

}  // namespace weft::data::detail
