#include "ops/detail/convert.h"

#include "ops/detail/wide_lanes.h"

#include <algorithm>
#include <cstring>

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

// Runs of these are converted by whole registers, with the bits that single numbers give.
template <class S, class T>
inline constexpr bool by_lanes = std::is_same_v<T, float> &&
                                 (std::is_same_v<S, BFloat16> || std::is_same_v<S, Float16>);

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
    } else if constexpr (by_lanes<S, T>) {
      for_lanes<float>(count, [&]<class V>(int64_t i) { store(out + i, load_wide<V>(in + i)); });
    } else {
      for (int64_t i = 0; i < count; ++i)
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
    } else if constexpr (by_lanes<D, T>) {
      for_lanes<float>(count, [&]<class V>(int64_t i) { store_wide(out + i, load<V>(in + i)); });
    } else {
      for (int64_t i = 0; i < count; ++i)
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
