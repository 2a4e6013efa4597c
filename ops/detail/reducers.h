// How values are mapped and combined by reductions, and how that becomes a Reducer.
//
// A reducer has map(x, centre), applied to every value; combine(a, b), which must be plain
// arithmetic, so that numbers and packets give the same bits; and identity, the value that combine
// ignores.
#pragma once

#include "ops/detail/functors.h"
#include "ops/detail/reduce_loop.h"

#include <algorithm>
#include <limits>

namespace weft::detail {

using functors::constant;
using functors::kLanes;
using functors::load_packet;
using functors::Packet;
using functors::where;

template <class T>
constexpr T lowest() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::lowest();
}
template <class T>
constexpr T highest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::max();
}

struct Adding {
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  template <class V>
  V combine(V a, V b) const {
    return a + b;
  }
};
struct Multiplying {
  template <class T>
  static constexpr T identity() {
    return T(1);
  }
  template <class V>
  V combine(V a, V b) const {
    return a * b;
  }
};
// NaN wins.
struct Maximal {
  template <class T>
  static constexpr T identity() {
    return lowest<T>();
  }
  template <class V>
  V combine(V a, V b) const {
    return where((a > b) | (a != a), a, b);
  }
};
struct Minimal {
  template <class T>
  static constexpr T identity() {
    return highest<T>();
  }
  template <class V>
  V combine(V a, V b) const {
    return where((a < b) | (a != a), a, b);
  }
};

template <class Combine>
struct Plain : Combine {
  template <class V>
  V map(V x, V) const {
    return x;
  }
};
template <class Combine>
struct Magnitude : Combine {
  template <class V>
  V map(V x, V) const {
    return functors::fabs(x);
  }
};
struct SumOfSquares : Adding {
  template <class V>
  V map(V x, V) const {
    return x * x;
  }
};
struct SumOfPowers : Adding {
  double p;
  template <class V>
  V map(V x, V) const {
    return functors::pow(functors::fabs(x), constant<V>(p));
  }
};
struct CountNonzero : Adding {
  template <class V>
  V map(V x, V) const {
    return where(x != constant<V>(0), constant<V>(1), constant<V>(0));
  }
};
struct CountZero : Adding {
  template <class V>
  V map(V x, V) const {
    return where(x == constant<V>(0), constant<V>(1), constant<V>(0));
  }
};
// How many values equal the centre (or have its magnitude).
struct CountEqual : Adding {
  template <class V>
  V map(V x, V c) const {
    return where(x == c, constant<V>(1), constant<V>(0));
  }
};
struct CountEqualMagnitude : Adding {
  template <class V>
  V map(V x, V c) const {
    return where(functors::fabs(x) == c, constant<V>(1), constant<V>(0));
  }
};
struct ProductOfNonzero : Multiplying {
  template <class V>
  V map(V x, V) const {
    return where(x == constant<V>(0), constant<V>(1), x);
  }
};
struct CentredSquares : Adding {
  template <class V>
  V map(V x, V c) const {
    return (x - c) * (x - c);
  }
};
struct CentredExps : Adding {
  template <class V>
  V map(V x, V c) const {
    return functors::exp(x - c);
  }
};

// The kernels of reducer R for compute type T.
template <class R, class T>
struct ReduceKernels {
  using V = Packet<T>;
  static constexpr int64_t kVectors = kReduceLanes / kLanes<T>;
  static constexpr int64_t kAhead = 8;  // rows to fetch before they are used

  static V filled(T value) { return V{} + value; }
  static V load_some(const T* from, int64_t count) {  // the rest repeats the first
    T values[kLanes<T>];
    std::fill_n(values, kLanes<T>, from[0]);
    std::copy_n(from, count, values);
    return load_packet<T>(values);
  }
  static void store(T* to, V value) { std::memcpy(to, &value, sizeof value); }

  static void row(const void* from, int64_t count, const void* center, void* lanes,
                  const void* functor) {
    const R r = *static_cast<const R*>(functor);
    const T* in = static_cast<const T*>(from);
    const V c = filled(*static_cast<const T*>(center));
    V parts[kReducePiece / kReduceBlock][kVectors];
    int64_t blocks = 0;
    for (int64_t at = 0; at < count || blocks == 0; at += kReduceBlock, ++blocks) {
      const int64_t end = std::min(count, at + kReduceBlock);
      V sums[kVectors];
      for (V& sum : sums)
        sum = filled(R::template identity<T>());
      int64_t i = at;
      for (; i + kReduceLanes <= end; i += kReduceLanes) {
        for (int64_t v = 0; v < kVectors; ++v) {
          sums[v] = r.combine(sums[v], r.map(load_packet<T>(in + i + v * kLanes<T>), c));
        }
      }
      for (int64_t v = 0; v < kVectors && i < end; ++v, i += kLanes<T>) {
        const int64_t left = std::min(kLanes<T>, end - i);
        V last = r.map(load_some(in + i, left), c);
        for (int64_t k = left; k < kLanes<T>; ++k)
          last[k] = R::template identity<T>();
        sums[v] = r.combine(sums[v], last);
      }
      std::copy_n(sums, kVectors, parts[blocks]);
    }
    for (int64_t step = 1; step < blocks; step *= 2) {
      for (int64_t b = 0; b + step < blocks; b += 2 * step) {
        for (int64_t v = 0; v < kVectors; ++v)
          parts[b][v] = r.combine(parts[b][v], parts[b + step][v]);
      }
    }
    std::memcpy(lanes, parts[0], sizeof parts[0]);
  }

  static void columns(const void* const* rows, int64_t count, int64_t width, const void* centers,
                      void* lanes, const void* functor) {
    const R r = *static_cast<const R*>(functor);
    const T* c = static_cast<const T*>(centers);
    const int64_t whole = width / kLanes<T> * kLanes<T>;
    std::fill_n(static_cast<T*>(lanes), kReduceLanes * kReduceColumns<T>,
                R::template identity<T>());
    for (int64_t i = 0; i < count; ++i) {
      const T* in = static_cast<const T*>(rows[i]);
      if (i + kAhead < count) {  // rows may lie pages apart, where processors do not look ahead
        const char* next = static_cast<const char*>(rows[i + kAhead]);
        for (int64_t k = 0; k < width * static_cast<int64_t>(sizeof(T)); k += 64)
          __builtin_prefetch(next + k);
      }
      T* to = static_cast<T*>(lanes) + i % kReduceLanes * kReduceColumns<T>;
      for (int64_t k = 0; k < whole; k += kLanes<T>) {
        store(to + k, r.combine(load_packet<T>(to + k),
                                r.map(load_packet<T>(in + k), load_packet<T>(c + k))));
      }
      if (whole < width) {
        const V last = r.map(load_some(in + whole, width - whole), load_packet<T>(c + whole));
        store(to + whole, r.combine(load_packet<T>(to + whole), last));
      }
    }
  }

  static void fold(void* lanes) {
    const R r{};
    T* a = static_cast<T*>(lanes);
    for (int64_t half = kReduceLanes / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i)
        a[i] = r.combine(a[i], a[i + half]);
    }
  }

  static void combine(void* into, const void* from, int64_t count) {
    const R r{};
    T* a = static_cast<T*>(into);
    const T* b = static_cast<const T*>(from);
    int64_t i = 0;
    for (; i + kLanes<T> <= count; i += kLanes<T>) {
      store(a + i, r.combine(load_packet<T>(a + i), load_packet<T>(b + i)));
    }
    for (; i < count; ++i)
      a[i] = r.combine(a[i], b[i]);
  }
};

template <class R, class T>
Reducer reducer_of(const R& r) {
  using Kernels = ReduceKernels<R, T>;
  return {Kernels::row, Kernels::columns, Kernels::combine, Kernels::fold, &r};
}

// in[0..count) reduced in the order that ops/detail/reduce_loop.h lays down.
template <class R, class T>
T reduce_line(const R& r, const T* in, int64_t count, T center = T(0)) {
  using Kernels = ReduceKernels<R, T>;
  T levels[64][kReduceLanes];  // a subtree of 2^level pieces waits at each level whose bit is set
                               // in `pieces`
  T lanes[kReduceLanes];
  uint64_t pieces = 0;
  for (int64_t at = 0; at < count || at == 0; at += kReducePiece, ++pieces) {
    Kernels::row(in + at, std::min(kReducePiece, count - at), &center, lanes, &r);
    size_t level = 0;
    for (; (pieces >> level & 1u) != 0; ++level)
      Kernels::combine(lanes, levels[level], kReduceLanes);
    std::copy_n(lanes, kReduceLanes, levels[level]);
  }
  bool first = true;
  for (size_t level = 0; pieces >> level != 0; ++level) {
    if ((pieces >> level & 1u) == 0) continue;
    if (first) {
      std::copy_n(levels[level], kReduceLanes, lanes);
    } else {
      Kernels::combine(lanes, levels[level], kReduceLanes);
    }
    first = false;
  }
  for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
    Kernels::combine(lanes, lanes + half, half);
  return lanes[0];
}

enum class Numbers : uint8_t { real, any };

// Reduces x over `dims` (kept as size 1) into `result`; Numbers::any admits integers, which compute
// in i64.
template <Numbers numbers, class R>
Tensor reduce(const Tensor& x, DimSet dims, DType result, const R& r, const Tensor& centers = {}) {
  const DType compute = compute_dtype(x.dtype());
  if (compute == DType::f32)
    return run_reduction(x, dims, compute, result, reducer_of<R, float>(r), centers);
  if (compute == DType::f64)
    return run_reduction(x, dims, compute, result, reducer_of<R, double>(r), centers);
  if constexpr (numbers == Numbers::any) {
    return run_reduction(x, dims, compute, result, reducer_of<R, int64_t>(r), centers);
  }
  throw_error("reduce", {"expected a floating-point tensor, got ", x.dtype()});
}

}  // namespace weft::detail
