// The innermost loops of direct convolution: a tile of sums in vector registers, six pixels (or
// taps) by two vectors of channels, which leaves one of 16 registers to broadcast and two to load
// into; twelve where there are 32.
#pragma once

#include "ops/detail/lanes.h"

#include <array>

namespace weft::detail::conv {

inline constexpr int kTileRows = functors::kPacketBytes == 64 ? 12 : 6;
inline constexpr int kTileWide = 2;
template <class T>
inline constexpr int64_t kPanel = kTileWide* kLanes<T>;  // channels of a whole panel

// A count of `items` as near-equal parts of at most kTileRows: 7 is 4 + 3 rather than 6 + 1.
inline int64_t tile_parts(int64_t items) {
  return (items + kTileRows - 1) / kTileRows;
}
inline int64_t tile_begin(int64_t items, int64_t part, int64_t parts) {
  return items * part / parts;
}

// What one tile reads: `segments` runs of `length` values from each pixel, beginning at segment[s].
struct Segments {
  const int64_t* segment;
  int64_t count;
  int64_t length;
};

// y[m][0 … columns) = bias + the sum over all values v of x[m] times row v of `weights`, whose rows
// have Wide vectors.
template <class T, int Rows, int Wide>
void pixel_tile(const T* const* x, const Segments& segments, const T* weights, const T* bias,
                T* const* y, int64_t columns) {
  using V = Packet<T>;
  V sums[Rows][Wide];
#pragma GCC unroll 12
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < Wide; ++v)
      sums[m][v] = load<V>(bias + v * kLanes<T>);
  }
  for (int64_t s = 0; s < segments.count; ++s) {
    const T* from[Rows];
#pragma GCC unroll 12
    for (int m = 0; m < Rows; ++m)
      from[m] = x[m] + segments.segment[s];
#pragma GCC unroll 4
    for (int64_t i = 0; i < segments.length; ++i, weights += Wide * kLanes<T>) {
      V right[Wide];
#pragma GCC unroll 2
      for (int v = 0; v < Wide; ++v)
        right[v] = load<V>(weights + v * kLanes<T>);
#pragma GCC unroll 12
      for (int m = 0; m < Rows; ++m) {
        const V left = broadcast<V>(from[m][i]);
#pragma GCC unroll 2
        for (int v = 0; v < Wide; ++v)
          sums[m][v] = fma(left, right[v], sums[m][v]);
      }
    }
  }
  if (columns == Wide * kLanes<T>) {
#pragma GCC unroll 12
    for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
      for (int v = 0; v < Wide; ++v)
        store(y[m] + v * kLanes<T>, sums[m][v]);
    }
    return;
  }
#pragma GCC unroll 12
  for (int m = 0; m < Rows; ++m)
    std::memcpy(y[m], sums[m], static_cast<size_t>(columns) * sizeof(T));
}

// What one tile of a weight gradient sums over: rows of `columns` pixels. The x of (row, column)
// lies at row[row] + column * x_step from each tap's address, the gradient at (row * columns +
// column) * g_step.
struct PixelRows {
  const int64_t* row;
  int64_t rows;
  int64_t columns;
  int64_t x_step;
  int64_t g_step;
};

// sums[m][…] += the sum over pixels of x[m] times Wide vectors of g. Rows of sums are `pitch`
// apart. `Together`: x[m] is x[0] + m, and one register holds what Rows would.
template <class T, int Rows, int Wide, bool Together>
void tap_tile(const T* const* x, const PixelRows& pixels, const T* g, T* sums, int64_t pitch) {
  using V = Packet<T>;
  V tile[Rows][Wide];
#pragma GCC unroll 12
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < Wide; ++v)
      tile[m][v] = load<V>(sums + m * pitch + v * kLanes<T>);
  }
  for (int64_t r = 0; r < pixels.rows; ++r) {
    const T* from[Together ? 1 : Rows];
#pragma GCC unroll 12
    for (int m = 0; m < (Together ? 1 : Rows); ++m)
      from[m] = x[m] + pixels.row[r];
    int64_t at = 0;
    for (int64_t c = 0; c < pixels.columns; ++c, at += pixels.x_step, g += pixels.g_step) {
      V right[Wide];
#pragma GCC unroll 2
      for (int v = 0; v < Wide; ++v)
        right[v] = load<V>(g + v * kLanes<T>);
#pragma GCC unroll 12
      for (int m = 0; m < Rows; ++m) {
        const V left = broadcast<V>(Together ? from[0][at + m] : from[m][at]);
#pragma GCC unroll 2
        for (int v = 0; v < Wide; ++v)
          tile[m][v] = fma(left, right[v], tile[m][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 2
    for (int v = 0; v < Wide; ++v)
      store(sums + m * pitch + v * kLanes<T>, tile[m][v]);
  }
}

// The tile kernels for 1 … kTileRows rows and one or two vectors, by [wide - 1][rows - 1].
template <class T>
using PixelTile = void (*)(const T* const*, const Segments&, const T*, const T*, T* const*,
                           int64_t);
template <class T>
using TapTile = void (*)(const T* const*, const PixelRows&, const T*, T*, int64_t);
template <class Tile>
using TileTable = std::array<std::array<Tile, kTileRows>, kTileWide>;
template <class T>
inline constexpr auto kPixelTiles = []<size_t... I>(std::index_sequence<I...>) {
  return TileTable<PixelTile<T>>{{{pixel_tile<T, I + 1, 1>...}, {pixel_tile<T, I + 1, 2>...}}};
}
(std::make_index_sequence<kTileRows>());
template <class T, bool Together>
inline constexpr auto kTapTiles = []<size_t... I>(std::index_sequence<I...>) {
  return TileTable<TapTile<T>>{
      {{tap_tile<T, I + 1, 1, Together>...}, {tap_tile<T, I + 1, 2, Together>...}}};
}
(std::make_index_sequence<kTileRows>());

// Sums of g's columns, added to sums[0 … channels): rows are `pitch` apart.
template <class T>
void add_columns(const T* g, int64_t rows, int64_t pitch, int64_t channels, T* sums) {
  for_lanes<T>(channels, [&]<class V>(int64_t c) {
    V sum = load<V>(sums + c);
    for (int64_t r = 0; r < rows; ++r)
      sum += load<V>(g + r * pitch + c);
    store(sums + c, sum);
  });
}

}  // namespace weft::detail::conv
