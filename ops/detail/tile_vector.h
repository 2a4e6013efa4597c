// Vectors as wide as the processor's registers: of products, which make use of every lane. What is
// bound by memory uses packets (packet_value.h), which are the same on all processors.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace weft::detail::tile {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#else
inline constexpr int kVectorBytes = 32;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class T>
inline void store(T* to, Vector<T> v) {
  std::memcpy(to, &v, sizeof v);
}

template <class T, size_t... I>
inline Vector<T> repeat(T x, std::index_sequence<I...>) {
  return Vector<T>{(static_cast<void>(I), x)...};
}
template <class T>
inline Vector<T> repeat(T x) {
  return repeat(x, std::make_index_sequence<kLanes<T>>());
}

// a * b + c, rounded once.
#if defined(__AVX512F__)
inline Vector<float> fma(Vector<float> a, Vector<float> b, Vector<float> c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vector<double> fma(Vector<double> a, Vector<double> b, Vector<double> c) {
  return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__FMA__)
inline Vector<float> fma(Vector<float> a, Vector<float> b, Vector<float> c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vector<double> fma(Vector<double> a, Vector<double> b, Vector<double> c) {
  return _mm256_fmadd_pd(a, b, c);
}
#else
template <class V>
inline V fma(V a, V b, V c) {
  for (size_t i = 0; i < sizeof(V) / sizeof(a[0]); ++i)
    c[i] = std::fma(a[i], b[i], c[i]);
  return c;
}
#endif

// sum = left * right + sum. The instruction is spelt out so that the operands stay in registers:
// left to itself, the compiler loads `right` from memory for each use and moves sums about, and
// then loads and moves set the pace, not multiply-adds.
template <class V>
inline void add_product(V& sum, V left, V right) {
#if defined(__AVX512F__) || defined(__FMA__)
  if constexpr (sizeof(sum[0]) == 4) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  } else {
    asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  }
#else
  sum = fma(left, right, sum);
#endif
}

}  // namespace weft::detail::tile
