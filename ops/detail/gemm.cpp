#include "ops/detail/gemm.h"

#include "core/parallel.h"
#include "ops/detail/gemm_pack.h"
#include "ops/detail/gemm_tile.h"

#include <algorithm>
#include <limits>

namespace weft::detail {
namespace {

using tile::kLanes;
using tile::kRows;

constexpr int64_t kDepth = 256;  // products summed in registers: what the header promises
// Most rows of A whose packed block stays in the second-level cache.
constexpr int64_t kBlockRows = 192;
// Columns of C from which on A's rows are read so often that they are packed first.
constexpr int64_t kOftenRead = functors::kPacketBytes == 64 ? 128 : 256;
constexpr int64_t kFetchedBytes =
    int64_t{256} << 10;  // of A and B, from which on what is packed next is fetched ahead
constexpr int64_t kGrainProducts =
    1 << 20;  // multiply-adds below which a second thread costs more than it saves
constexpr int64_t kPackingCost = 32;  // of one element, in multiply-adds

// The plan of one product, after which side the vectors run along has been settled (always B's
// columns). Threads share C out as a grid of cells; each packs what its cell needs. Within a cell
// come blocks of rows, within a block slices of depth, within a slice panels of B, and down each
// panel tiles. A slice of A is packed before its panels; a panel of B before its first tile, in the
// first block of rows. Meanwhile the memory that is packed next is fetched.
template <class T>
class Product {
 public:
  explicit Product(const Gemm<T>& product) : g_(product) {
    panels_ = (g_.n + kWidth - 1) / kWidth;
    // B can be read where it lies if its rows are contiguous and few tiles read each of them; the
    // last, narrow panel is always copied, for vectors must not read past its end.
    const int64_t row_tiles = (std::min(g_.m, kBlockRows) + kRows<2> - 1) / kRows<2>;
    const bool in_place = g_.b_col == 1 && (row_tiles <= 2 || g_.k <= 16);
    first_packed_ = in_place ? g_.n / kWidth : 0;
    // A is read where it lies unless it is read often, or its steps would fall on few sets of the
    // first-level cache.
    const int64_t step = kSize * (g_.a_col == 1 ? g_.a_row : g_.a_col);
    const bool clashes = step % 1024 == 0 && g_.k > 32 && g_.m > 4;
    pack_a_ = clashes || (g_.a_col == 1 ? g_.n >= kOftenRead && g_.m > 12 && g_.k > 32
                                        : panels_ >= 2 && g_.k > 32);
    fetches_ = (g_.m + g_.n) * g_.k * kSize > kFetchedBytes;
  }

  void run() const {
    const Grid grid = grid_for(num_threads());
    const int64_t cells = grid.rows * grid.columns;
    parallel_for(0, cells, 1, [&](int64_t begin, int64_t end) {
      if (end - begin == cells) return run_cell({0, g_.m, 0, panels_});  // one thread after all
      for (int64_t cell = begin; cell < end; ++cell) {
        const int64_t row = cell / grid.columns;
        const int64_t column = cell % grid.columns;
        run_cell({g_.m * row / grid.rows, g_.m * (row + 1) / grid.rows,
                  panels_ * column / grid.columns, panels_ * (column + 1) / grid.columns});
      }
    });
  }

 private:
  static constexpr int64_t kSize = sizeof(T);
  static constexpr int64_t kWidth = 2 * kLanes<T>;  // columns of a panel
  static constexpr int64_t kMostAtOnce = 4;         // panels

  struct Grid {
    int64_t rows, columns;
  };
  struct Cell {
    int64_t row, end_row;      // of C
    int64_t panel, end_panel;  // of B
    int64_t blocks() const {   // of rows, of near-equal heights
      return (end_row - row + kBlockRows - 1) / kBlockRows;
    }
    int64_t block_row(int64_t block) const { return row + (end_row - row) * block / blocks(); }
  };
  // Rows [row, row + rows) of A, products [from, from + depth).
  struct Slice {
    int64_t row, rows, from, depth;
  };

  // The cells whose largest is done first, with what it packs: square ones pack least.
  Grid grid_for(int64_t threads) const {
    const int64_t grains = (g_.m * g_.n * g_.k + kGrainProducts - 1) / kGrainProducts;
    threads = std::min(threads, grains);
    Grid best{1, 1};
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t rows = 1; rows <= std::min(threads, g_.m); ++rows) {
      const int64_t columns = std::min(threads / rows, panels_);
      const int64_t high = (g_.m + rows - 1) / rows;
      const int64_t wide = (panels_ + columns - 1) / columns * kWidth;
      const int64_t cost = high * wide + kPackingCost * (high + wide);
      if (cost < least) {
        least = cost;
        best = {rows, columns};
      }
    }
    return best;
  }

  // ---- A ----

  // Rows of a tile: few rows take narrow tiles, to leave room for more panels at once.
  static int64_t tile_rows(int64_t rows) {
    if (rows <= kRows<8>) return kRows<8>;
    return rows <= 3 * kRows<4> && rows != kRows<2> ? kRows<4> : kRows<2>;
  }
  static int64_t tiles_of(int64_t rows) {
    const int64_t height = tile_rows(rows);
    return (rows + height - 1) / height;
  }
  const T* a_at(const Slice& slice) const {
    return g_.a + slice.row * g_.a_row + slice.from * g_.a_col;
  }
  Ahead source(const Slice& slice) const {
    if (g_.a_col == 1) return {a_at(slice), slice.rows, g_.a_row, slice.depth};
    if (g_.a_row == 1) return {a_at(slice), slice.depth, g_.a_col, slice.rows};
    return {};
  }

  // ---- B ----

  int64_t panel_columns(int64_t panel) const { return std::min(kWidth, g_.n - panel * kWidth); }
  // A narrow last panel takes one vector where that is enough.
  static int64_t panel_stride(int64_t columns) { return columns <= kLanes<T> ? kLanes<T> : kWidth; }
  const T* b_at(int64_t panel, int64_t from) const {
    return g_.b + panel * kWidth * g_.b_col + from * g_.b_row;
  }
  Ahead source(int64_t panel, int64_t from) const {
    const int64_t columns = panel_columns(panel);
    const int64_t depth = std::min(kDepth, g_.k - from);
    if (g_.b_col == 1) return {b_at(panel, from), depth, g_.b_row, columns};
    if (g_.b_row == 1) return {b_at(panel, from), columns, g_.b_col, depth};
    return {};
  }
  // Panels that are taken at once: few rows take several, to keep enough sums in flight.
  static int64_t panels_at_once(int64_t rows, int64_t whole) {
    const int64_t height = tile_rows(rows);
    if (height <= kRows<8> && whole >= 4) return kMostAtOnce;
    return height <= kRows<4> && whole >= 2 ? 2 : 1;
  }

  // ---- C ----

  void run_cell(const Cell& cell) const {
    const int64_t blocks = cell.blocks();
    const int64_t depth = std::min(g_.k, kDepth);
    Tensor packed_a;
    if (pack_a_) {
      const int64_t rows = (cell.end_row - cell.row + blocks - 1) / blocks;
      packed_a = empty({tiles_of(rows) * kLanes<T> + rows * depth}, {.dtype = dtype_of<T>});
    }
    // One block needs a panel but once: its place is the next one's, in the first-level cache.
    const int64_t packed = cell.end_panel - std::max(cell.panel, first_packed_);
    Tensor packed_b;
    if (packed > 0) {
      packed_b = blocks > 1 ? empty({packed, g_.k, kWidth}, {.dtype = dtype_of<T>})
                            : empty({std::min(packed, kMostAtOnce), depth, kWidth},
                                    {.dtype = dtype_of<T>});
    }
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t from = 0; from < g_.k; from += kDepth)
        run_slice(cell, block, from, packed_a, packed_b);
    }
  }

  Slice slice_of(const Cell& cell, int64_t block, int64_t from) const {
    const int64_t row = cell.block_row(block);
    return {row, cell.block_row(block + 1) - row, from, std::min(kDepth, g_.k - from)};
  }

  // What comes after this slice.
  Ahead source_after(const Cell& cell, int64_t block, int64_t from) const {
    if (!fetches_ || !pack_a_) return {};
    if (from + kDepth < g_.k) return source(slice_of(cell, block, from + kDepth));
    return block + 1 < cell.blocks() ? source(slice_of(cell, block + 1, 0)) : Ahead();
  }

  void run_slice(const Cell& cell, int64_t block, int64_t from, const Tensor& packed_a,
                 const Tensor& packed_b) const {
    const Slice slice = slice_of(cell, block, from);
    const int64_t tiles = tiles_of(slice.rows);
    Strip strip;
    strip.tiles = tiles;
    strip.rows = slice.rows;
    strip.depth = slice.depth;
    strip.a = a_at(slice);
    strip.a_row = g_.a_row;
    strip.a_col = g_.a_col;
    if (pack_a_) {
      T* to = packed_a.template data<T>();
      tile::pack_rows(strip.a, g_.a_row, g_.a_col, slice.rows, slice.depth, tiles, to);
      strip.a = to;
      strip.packed = true;
    }
    strip.next_a = source_after(cell, block, from);
    strip.shares = tiles * (cell.end_panel - cell.panel);
    const bool kept = cell.blocks() > 1;
    const bool last = from + slice.depth == g_.k;
    for (int64_t panel = cell.panel; panel < cell.end_panel;) {
      const bool packed = panel >= first_packed_;
      const int64_t columns = panel_columns(panel);
      const int64_t whole =
          std::min(packed ? g_.n / kWidth : first_packed_, cell.end_panel) - panel;
      const int64_t count = panels_at_once(slice.rows, whole);
      const int64_t after = panel + count;
      strip.b_row = packed ? panel_stride(columns) : g_.b_row;
      strip.b = b_at(panel, from);
      strip.b_panel = kWidth;
      strip.next_b = {};
      if (packed) {
        strip.b_panel = (kept ? g_.k : slice.depth) * kWidth;
        T* to = packed_b.template data<T>();
        if (kept)
          to += (panel - std::max(cell.panel, first_packed_)) * strip.b_panel + from * strip.b_row;
        strip.b = to;
        if (block == 0) {
          for (int64_t i = 0; i < count; ++i) {
            tile::pack_columns(b_at(panel + i, from), g_.b_row, g_.b_col, panel_columns(panel + i),
                               slice.depth, to + i * strip.b_panel, strip.b_row);
          }
          if (fetches_ && after < cell.end_panel) {
            strip.next_b = source(after, from);
          } else if (fetches_ && !last) {
            strip.next_b = source(cell.panel, from + kDepth);
          }
        } else if (fetches_ && after < cell.end_panel) {  // what has been packed
          strip.next_b = {to + count * strip.b_panel, 1, 0, slice.depth * kWidth};
        }
      }
      strip.to = {g_.c + slice.row * g_.c_row + panel * kWidth * g_.c_col,
                  g_.c_row,
                  g_.c_col,
                  static_cast<int>(count > 1 ? count * kWidth : columns),
                  g_.accumulate || from > 0,
                  last && g_.bias ? g_.bias + slice.row * g_.bias_row + panel * kWidth * g_.bias_col
                                  : nullptr,
                  g_.bias_row,
                  g_.bias_col};
      if (count == kMostAtOnce) {
        run_tiles<8>(strip);
      } else if (count == 2) {
        run_tiles<4>(strip);
      } else if (columns <= kLanes<T>) {
        run_tiles<1>(strip);
      } else {
        run_tiles<2>(strip);
      }
      panel = after;
    }
  }

  // Some rows of A against one or more panels of B.
  struct Strip {
    int64_t tiles = 0, rows = 0, depth = 0;
    const T* a = nullptr;
    int64_t a_row = 0, a_col = 0;  // of A where it lies
    bool packed = false;           // A is packed: tile after tile
    const T* b = nullptr;
    int64_t b_row = 0, b_panel = 0;
    tile::Target<T> to{};
    Ahead next_a, next_b;           // what is packed next: a share is fetched with each tile
    int64_t share = 0, shares = 0;  // of next_a
  };

  // Tiles of as equal heights as can be.
  template <int Wide>
  static void run_tiles(Strip& strip) {
    const T* a = strip.a;
    for (int64_t i = 0; i < strip.tiles; ++i) {
      const int64_t height = strip.rows * (i + 1) / strip.tiles - strip.rows * i / strip.tiles;
      strip.next_b.fetch(i, strip.tiles);
      strip.next_a.fetch(strip.share++, strip.shares);
      tile::kernel_for<T, Wide>(height)(strip.depth, a, strip.packed ? 1 : strip.a_row,
                                        strip.packed ? height : strip.a_col, strip.b, strip.b_row,
                                        strip.b_panel, strip.to);
      a += strip.packed ? height * strip.depth + kLanes<T> : height * strip.a_row;
      strip.to.c += height * strip.to.row;
      if (strip.to.bias) strip.to.bias += height * strip.to.bias_row;
    }
  }

  Gemm<T> g_;
  int64_t panels_ = 0;
  int64_t first_packed_ = 0;
  bool pack_a_ = false;
  bool fetches_ = false;
};

// Cᵀ = Bᵀ Aᵀ: the same sums with the vectors along A's rows.
template <class T>
Gemm<T> transposed(const Gemm<T>& g) {
  return {.m = g.n,
          .n = g.m,
          .k = g.k,
          .a = g.b,
          .a_row = g.b_col,
          .a_col = g.b_row,
          .b = g.a,
          .b_row = g.a_col,
          .b_col = g.a_row,
          .c = g.c,
          .c_row = g.c_col,
          .c_col = g.c_row,
          .bias = g.bias,
          .bias_row = g.bias_col,
          .bias_col = g.bias_row,
          .accumulate = g.accumulate};
}

// Whether the vectors should run along A's rows. Packing B across its rows is dear, so with few
// rows of A it is A that gets packed (not with one or two, which would leave the vectors empty); a
// column-major C is written straight.
template <class T>
bool runs_along_rows(const Gemm<T>& g) {
  if (g.c_col != 1 && g.c_row == 1) return g.n > 1;
  if (g.b_col == 1 || g.m >= g.n) return false;
  return g.a_row == 1 || (g.m > 2 && g.m <= 64);
}

template <class T>
void fill(const Gemm<T>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      T& c = g.c[i * g.c_row + j * g.c_col];
      if (!g.accumulate) c = T{0};
      if (g.bias) c += g.bias[i * g.bias_row + j * g.bias_col];
    }
  }
}

}  // namespace

template <class T>
void gemm(const Gemm<T>& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) return fill(product);
  Product<T>(runs_along_rows(product) ? transposed(product) : product).run();
}

template void gemm<float>(const Gemm<float>&);
template void gemm<double>(const Gemm<double>&);

}  // namespace weft::detail
