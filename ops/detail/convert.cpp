#include "ops/detail/convert.h"

#include <algorithm>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace weft::detail {
namespace {

template <class T, class S>
inline T widen(S value) {
  if constexpr (std::is_same_v<S, BFloat16> || std::is_same_v<S, Float16>) {
    return static_cast<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class D, class T>
inline D narrow(T value) {
  if constexpr (std::is_same_v<D, BFloat16> || std::is_same_v<D, Float16>) {
    return D(static_cast<float>(value));
  } else if constexpr (std::is_same_v<D, bool>) {
    return value != T(0);
  } else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<D>) {
    return static_cast<D>(nearest_integer<int64_t>(value));  // from i64 on it wraps
  } else {
    return static_cast<D>(value);
  }
}

// Eight at a time by the processor's own conversions where it has them; the scalar code gives the
// same bits.
int64_t widen_f16_fast([[maybe_unused]] float* out, [[maybe_unused]] const Float16* in,
                       [[maybe_unused]] int64_t count) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  return i;
}

int64_t narrow_f16_fast([[maybe_unused]] Float16* out, [[maybe_unused]] const float* in,
                        [[maybe_unused]] int64_t count) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i half =
        _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
#endif
  return i;
}

}  // namespace

template <class T>
void load_run(T* out, const std::byte* from, DType dtype, int64_t stride, int64_t count) {
  dispatch_all(dtype, [&]<class S>() {
    const auto* in = reinterpret_cast<const S*>(from);
    if (stride == 0) return void(std::fill_n(out, count, widen<T>(in[0])));
    if (stride != 1) {
      for (int64_t i = 0; i < count; ++i)
        out[i] = widen<T>(in[i * stride]);
      return;
    }
    if constexpr (std::is_same_v<S, T>) {
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
    } else {
      int64_t i = 0;
      if constexpr (std::is_same_v<S, Float16> && std::is_same_v<T, float>)
        i = widen_f16_fast(out, in, count);
      for (; i < count; ++i)
        out[i] = widen<T>(in[i]);
    }
  });
}

template <class T>
void store_run(std::byte* to, DType dtype, int64_t stride, const T* in, int64_t count) {
  dispatch_all(dtype, [&]<class D>() {
    auto* out = reinterpret_cast<D*>(to);
    if (stride != 1) {
      for (int64_t i = 0; i < count; ++i)
        out[i * stride] = narrow<D>(in[i]);
      return;
    }
    if constexpr (std::is_same_v<D, T>) {
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
    } else {
      int64_t i = 0;
      if constexpr (std::is_same_v<D, Float16> && std::is_same_v<T, float>)
        i = narrow_f16_fast(out, in, count);
      for (; i < count; ++i)
        out[i] = narrow<D>(in[i]);
    }
  });
}

template void load_run(float*, const std::byte*, DType, int64_t, int64_t);
template void load_run(double*, const std::byte*, DType, int64_t, int64_t);
template void load_run(int64_t*, const std::byte*, DType, int64_t, int64_t);
template void store_run(std::byte*, DType, int64_t, const float*, int64_t);
template void store_run(std::byte*, DType, int64_t, const double*, int64_t);
template void store_run(std::byte*, DType, int64_t, const int64_t*, int64_t);

}  // namespace weft::detail
