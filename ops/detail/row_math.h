// Softmax-like work on rows of numbers that lie side by side. Tails run through padded packets, so
// a row's bits depend on its values and length alone.
#pragma once

#include "ops/detail/functors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace weft::detail {

// Packet `at`.. of a row of `count`, the missing lanes filled with `padding`.
template <class T>
functors::Packet<T> row_packet(const T* row, int64_t at, int64_t count, T padding) {
  constexpr int64_t lanes = functors::kLanes<T>;
  if (at + lanes <= count) return functors::load_packet(row + at);
  T padded[lanes];
  for (int64_t i = 0; i < lanes; ++i)
    padded[i] = at + i < count ? row[at + i] : padding;
  return functors::load_packet(padded);
}

template <class T>
void store_row_packet(T* row, int64_t at, int64_t count, functors::Packet<T> value) {
  const int64_t lanes = std::min(functors::kLanes<T>, count - at);
  std::memcpy(row + at, &value, static_cast<size_t>(lanes) * sizeof(T));
}

// The sum of a packet's lanes, by halves.
template <class T>
T sum_lanes(functors::Packet<T> packet) {
  T lanes[functors::kLanes<T>];
  std::memcpy(lanes, &packet, sizeof packet);
  for (int64_t width = functors::kLanes<T> / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i)
      lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// What exponents of a row are shifted by: the largest x, or 0 where that is infinite or no number,
// so that these make their way through. -inf where every x is.
template <class T>
T exp_shift(const T* x, int64_t count) {
  using functors::Packet;
  constexpr int64_t lanes = functors::kLanes<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Packet<T> high = row_packet(x, 0, count, lowest);
  for (int64_t at = lanes; at < count; at += lanes) {
    const Packet<T> next = row_packet(x, at, count, lowest);
    high = next > high ? next : high;
  }
  T most = high[0];
  for (int64_t i = 1; i < lanes; ++i)
    most = high[i] > most ? high[i] : most;
  if (std::isfinite(most)) return most;
  const bool nothing =
      most == lowest && std::none_of(x, x + count, [](T v) { return std::isnan(v); });
  return nothing ? lowest : T(0);
}

// log Σ exp(x); -inf where every x is.
template <class T>
T log_sum_exp(const T* x, int64_t count) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const T shift = exp_shift(x, count);
  if (shift == lowest) return lowest;
  functors::Packet<T> sums{};
  for (int64_t at = 0; at < count; at += functors::kLanes<T>)
    sums += functors::exp(row_packet(x, at, count, lowest) - shift);
  return shift + std::log(sum_lanes<T>(sums));
}

// x[i] = exp(x[i] - shift); returns their sum.
template <class T>
T exp_and_sum_row(T* x, T shift, int64_t count) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  functors::Packet<T> sums{};
  for (int64_t at = 0; at < count; at += functors::kLanes<T>) {
    const functors::Packet<T> e = functors::exp(row_packet(x, at, count, lowest) - shift);
    store_row_packet<T>(x, at, count, e);
    sums += e;
  }
  return sum_lanes<T>(sums);
}

// out[i] = scale · exp(x[i] - shift); out may be x.
template <class T>
void exp_row(const T* x, T shift, T scale, T* out, int64_t count) {
  for (int64_t at = 0; at < count; at += functors::kLanes<T>) {
    store_row_packet<T>(out, at, count,
                        functors::exp(row_packet(x, at, count, shift) - shift) * scale);
  }
}

// Σ a[i] b[i]
template <class T>
T dot_row(const T* a, const T* b, int64_t count) {
  functors::Packet<T> sums{};
  for (int64_t at = 0; at < count; at += functors::kLanes<T>) {
    sums += row_packet(a, at, count, T(0)) * row_packet(b, at, count, T(0));
  }
  return sum_lanes<T>(sums);
}

// Σ a[i]
template <class T>
T sum_row(const T* a, int64_t count) {
  functors::Packet<T> sums{};
  for (int64_t at = 0; at < count; at += functors::kLanes<T>)
    sums += row_packet(a, at, count, T(0));
  return sum_lanes<T>(sums);
}

}  // namespace weft::detail
