// The innermost loop of matrix products: a tile of C held in vector registers, and the packing that
// feeds it.
#pragma once

#include "ops/detail/packet_value.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace weft::detail::tile {

template <class T>
using Vector = functors::Packet<T>;
template <class T>
inline constexpr int kLanes = static_cast<int>(functors::kLanes<T>);

// Rows of a tile that is `Wide` vectors wide: enough sums in flight to hide the latency of a
// multiply-add, few enough to stay in registers (16, or 32 with AVX-512).
template <int Wide>
inline constexpr int kRows = Wide == 1 ? 12 : (functors::kPacketBytes == 64 ? 24 : 12) / Wide;

template <class T>
inline Vector<T> load(const T* from) {
  return functors::load_packet(from);
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

// sum = left * right + sum. The instruction is spelt out so that the operands stay in registers:
// left to itself, the compiler loads `right` from memory for each use and moves sums about, and
// then loads and moves set the pace, not multiply-adds.
template <class V>
inline void add_product(V& sum, V left, V right) {
#if defined(__FMA__)
  if constexpr (sizeof(sum[0]) == 4) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  } else {
    asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  }
#else
  for (size_t i = 0; i < sizeof(V) / sizeof(sum[0]); ++i)
    sum[i] = std::fma(left[i], right[i], sum[i]);
#endif
}

// Products between two looks at the end of the sum.
inline constexpr int kUnrolled = 4;

// Where a finished tile goes.
template <class T>
struct Target {
  T* c;
  int64_t row, col;
  int columns;  // valid ones; the tile may be wider
  bool add;     // to what is there
  const T* bias;
  int64_t bias_row, bias_col;
};

// One element at a time: C is strided, or the tile hangs over its edge.
template <class T>
void write_elements(const Target<T>& to, const T* values, int rows, int row_length) {
  for (int j = 0; j < to.columns; ++j) {
    T* at = to.c + j * to.col;
    for (int i = 0; i < rows; ++i, at += to.row) {
      T sum = values[i * row_length + j];
      if (to.add) sum = *at + sum;
      if (to.bias) sum = sum + to.bias[i * to.bias_row + j * to.bias_col];
      *at = sum;
    }
  }
}

// A tile of Rows by Wide vectors: A's elements at a[i * a_row + p * a_col] are broadcast (packed A
// has a_row = 1 and a_col = Rows, one stream that the processor fetches ahead); B's rows
// are read as vectors, two at b + p * b_row, the next two b_panel further on, and so forth.
template <class T, int Rows, int Wide>
void compute(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row,
             int64_t b_panel, const Target<T>& to) {
  Vector<T> sums[Rows][Wide];
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Wide; ++v)
      sums[i][v] = Vector<T>{};
  }
  // Products p of the sums; `row` is A's step from row to row.
  const auto step = [&](const T* left_at, int64_t row, const T* right_at)
      __attribute__((always_inline)) {
    if constexpr (Rows >= Wide) {
      Vector<T> right[Wide];
#pragma GCC unroll 8
      for (int v = 0; v < Wide; ++v)
        right[v] = load(right_at + v / 2 * b_panel + v % 2 * kLanes<T>);
#pragma GCC unroll 12
      for (int i = 0; i < Rows; ++i) {
        const Vector<T> left = repeat(left_at[i * row]);
#pragma GCC unroll 8
        for (int v = 0; v < Wide; ++v)
          add_product(sums[i][v], left, right[v]);
      }
    } else {  // the fewer registers are held by A
      Vector<T> left[Rows];
#pragma GCC unroll 12
      for (int i = 0; i < Rows; ++i)
        left[i] = repeat(left_at[i * row]);
#pragma GCC unroll 8
      for (int v = 0; v < Wide; ++v) {
        const Vector<T> right = load(right_at + v / 2 * b_panel + v % 2 * kLanes<T>);
#pragma GCC unroll 12
        for (int i = 0; i < Rows; ++i)
          add_product(sums[i][v], left[i], right);
      }
    }
  };
  constexpr int64_t kPanelRow = (Wide == 1 ? 1 : 2) * kLanes<T>;
  const bool packed = a_row == 1 && a_col == Rows && b_row == kPanelRow;
  // C is on its way while the sums are made: row by row, for all at once would take up what the
  // processor can wait for, and what is multiplied next would have to wait behind them.
  const auto fetch_row = [&](int64_t i) __attribute__((always_inline)) {
    constexpr int kLineLanes = 64 / static_cast<int>(sizeof(T));
    for (int j = 0; j < Wide * kLanes<T>; j += kLineLanes)
      __builtin_prefetch(to.c + i * to.row + j, 1);
  };
  const int64_t spacing = packed ? k / (Rows + 1) / kUnrolled * kUnrolled : 0;
  int64_t fetched = to.col == 1 ? 0 : Rows;
  if (spacing == 0) {
    for (; fetched < Rows; ++fetched)
      fetch_row(fetched);
  }
  int64_t p = 0;
  if (packed) {  // the steps are constants
    int64_t due = fetched < Rows ? 0 : k;
    for (; p + kUnrolled <= k; p += kUnrolled, a += kUnrolled * Rows, b += kUnrolled * kPanelRow) {
      if (p == due) {
        fetch_row(fetched++);
        due = fetched < Rows ? due + spacing : k;
      }
#pragma GCC unroll 4
      for (int u = 0; u < kUnrolled; ++u)
        step(a + u * Rows, 1, b + u * kPanelRow);
    }
  }
  for (; p < k; ++p, a += a_col, b += b_row)
    step(a, a_row, b);
  constexpr int kColumns = Wide * kLanes<T>;
  if (to.col != 1 || to.columns != kColumns || (to.bias && to.bias_col != 1)) {
    alignas(functors::kPacketBytes) T values[Rows * kColumns];
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < Wide; ++v)
        store(values + i * kColumns + v * kLanes<T>, sums[i][v]);
    }
    return write_elements(to, values, Rows, kColumns);
  }
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < Wide; ++v) {
      T* at = to.c + i * to.row + v * kLanes<T>;
      Vector<T> sum = sums[i][v];
      if (to.add) sum = load(at) + sum;
      if (to.bias) sum = sum + load(to.bias + i * to.bias_row + v * kLanes<T>);
      store(at, sum);
    }
  }
}

template <class T>
using Compute = void (*)(int64_t, const T*, int64_t, int64_t, const T*, int64_t, int64_t,
                         const Target<T>&);

// The kernel for 1 … kRows rows.
template <class T, int Wide>
Compute<T> kernel_for(int64_t rows) {
  static constexpr auto kTable = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<Compute<T>, sizeof...(I)>{compute<T, static_cast<int>(I) + 1, Wide>...};
  }
  (std::make_index_sequence<kRows<Wide>>());
  return kTable[static_cast<size_t>(rows - 1)];
}

// ---- packing ----

// Lane i of the result is lane i of a, or where bit S of i is set, lane i - S of b; and the
// counterpart.
template <int S, class V, size_t... I>
inline V interleave_low(V a, V b, std::index_sequence<I...>) {
  constexpr int kCount = sizeof...(I);
  return __builtin_shufflevector(
      a, b, ((I & S) != 0 ? kCount + static_cast<int>(I) - S : static_cast<int>(I))...);
}
template <int S, class V, size_t... I>
inline V interleave_high(V a, V b, std::index_sequence<I...>) {
  constexpr int kCount = sizeof...(I);
  return __builtin_shufflevector(
      a, b, ((I & S) != 0 ? kCount + static_cast<int>(I) : static_cast<int>(I) + S)...);
}

// Transposes a square of vectors in log2 steps: swap the off-diagonal halves, quarters, …
// (Eklundh's method).
template <class T, int S = 1>
inline void transpose_square(Vector<T> (&rows)[kLanes<T>]) {
  if constexpr (S < kLanes<T>) {
    using Lanes = std::make_index_sequence<kLanes<T>>;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<T>; ++i) {
      if ((i & S) != 0) continue;
      const Vector<T> low = interleave_low<S>(rows[i], rows[i + S], Lanes());
      const Vector<T> high = interleave_high<S>(rows[i], rows[i + S], Lanes());
      rows[i] = low;
      rows[i + S] = high;
    }
    transpose_square<T, 2 * S>(rows);
  }
}

// to[p * to_row + j] = from[j * from_col + p] for p < count and j < columns: rows become columns.
template <class T>
void transpose(const T* from, int64_t from_col, int64_t columns, int64_t count, T* to,
               int64_t to_row) {
  constexpr int64_t kSide = kLanes<T>;
  for (int64_t j = 0; j < columns; j += kSide) {
    int64_t p = 0;
    if (j + kSide <= columns) {
      for (; p + kSide <= count; p += kSide) {
        Vector<T> square[kSide];
        for (int64_t i = 0; i < kSide; ++i)
          square[i] = load(from + (j + i) * from_col + p);
        transpose_square<T>(square);
        for (int64_t i = 0; i < kSide; ++i)
          store(to + (p + i) * to_row + j, square[i]);
      }
    }
    const int64_t last = std::min(columns, j + kSide);
    for (; p < count; ++p) {
      for (int64_t i = j; i < last; ++i)
        to[p * to_row + i] = from[i * from_col + p];
    }
  }
}

// to[p * rows + i] = from[i * row + p * col] for i < rows and p < count: the rows of one tile as
// the kernel reads them, at most two vectors high. Writes up to a vector past the end.
template <class T>
void interleave(const T* from, int64_t row, int64_t col, int64_t rows, int64_t count, T* to) {
  constexpr int64_t kSide = kLanes<T>;
  const int64_t groups = rows <= kSide ? 1 : 2;
  int64_t p = 0;
  if (col == 1) {
    for (; p + kSide <= count; p += kSide) {
      Vector<T> squares[2][kSide];
      for (int64_t group = 0; group < groups; ++group) {
        for (int64_t i = 0; i < kSide; ++i)
          squares[group][i] = load(from + std::min(group * kSide + i, rows - 1) * row + p);
        transpose_square<T>(squares[group]);
      }
      // Vectors that are wider than what is left of a tile are cut by what is written next.
      for (int64_t i = 0; i < kSide; ++i) {
        for (int64_t group = 0; group < groups; ++group)
          store(to + (p + i) * rows + group * kSide, squares[group][i]);
      }
    }
  } else if (row == 1) {
    // Vectors may be higher than the tile as long as what they read is still inside A.
    for (; p < count && (count - 1 - p) * col + rows >= groups * kSide; ++p) {
      for (int64_t group = 0; group < groups; ++group)
        store(to + p * rows + group * kSide, load(from + p * col + group * kSide));
    }
  }
  for (; p < count; ++p) {
    for (int64_t i = 0; i < rows; ++i)
      to[p * rows + i] = from[i * row + p * col];
  }
}

}  // namespace weft::detail::tile
