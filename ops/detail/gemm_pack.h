// How matrix products arrange their operands, tile by tile and panel by panel, and fetch what they
// will arrange next.
#pragma once

#include "ops/detail/gemm_tile.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace weft::detail {

// Memory that is read soon: `runs` runs of `length` elements, `step` elements apart. It is fetched
// to the second-level cache, a share at a time, between other work.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  Ahead(const T* from, int64_t runs, int64_t step, int64_t length)
      : from_(reinterpret_cast<const char*>(from)),
        step_(step * static_cast<int64_t>(sizeof(T))),
        lines_((length * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine),
        total_(runs * lines_) {}

  // The i-th of `shares` near-equal shares.
  void fetch(int64_t i, int64_t shares) const {
    if (total_ == 0) return;
    int64_t line = total_ * i / shares;
    const int64_t end = total_ * (i + 1) / shares;
    int64_t run = line / lines_;
    int64_t at = line % lines_;
    for (; line < end; ++line) {
      __builtin_prefetch(from_ + run * step_ + at * kLine, 0, 2);
      if (++at == lines_) {
        at = 0;
        ++run;
      }
    }
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes of a cache line
  const char* from_ = nullptr;
  int64_t step_ = 0;   // bytes
  int64_t lines_ = 1;  // of a run
  int64_t total_ = 0;  // lines
};

namespace tile {

// `depth` rows of `columns` columns of B as the kernel reads them, `stride` elements apart, filled
// up with zeros.
template <class T>
void pack_columns(const T* from, int64_t row, int64_t col, int64_t columns, int64_t depth, T* to,
                  int64_t stride) {
  constexpr int64_t kWidth = 2 * kLanes<T>;
  if (col == 1 && columns == kWidth) {  // a constant size is copied without a call
    for (int64_t p = 0; p < depth; ++p)
      std::memcpy(to + p * kWidth, from + p * row, kWidth * sizeof(T));
    return;
  }
  if (row == 1 && col != 1) {
    transpose(from, col, columns, depth, to, stride);
  } else {
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t j = 0; j < columns; ++j)
        to[p * stride + j] = from[p * row + j * col];
    }
  }
  if (columns == stride) return;
  for (int64_t p = 0; p < depth; ++p)
    std::fill(to + p * stride + columns, to + (p + 1) * stride, T{0});
}

// `rows` rows of A, `depth` products deep, as `tiles` tiles of near-equal heights, one after the
// other, with a vector's room after each, which packing may write to.
template <class T>
void pack_rows(const T* from, int64_t row, int64_t col, int64_t rows, int64_t depth, int64_t tiles,
               T* to) {
  // Where columns are what lies together, all tiles take their share of some before the next.
  constexpr int64_t kColumnsAtOnce = 16;
  const int64_t step = row == 1 ? kColumnsAtOnce : depth;
  for (int64_t p = 0; p < depth; p += step) {
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t first = rows * i / tiles;
      const int64_t height = rows * (i + 1) / tiles - first;
      interleave(from + first * row + p * col, row, col, height, std::min(step, depth - p),
                 to + first * depth + i * kLanes<T> + p * height);
    }
  }
}

}  // namespace tile
}  // namespace weft::detail
