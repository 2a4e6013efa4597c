#include "ops/detail/gemm.h"

#include "core/parallel.h"
#include "ops/detail/gemm_tile.h"

#include <algorithm>
#include <array>

namespace weft::detail {
namespace {

using tile::kLanes;
using tile::kRows;

constexpr int64_t kDepth = 256;  // products summed in registers: what the header promises
// Most rows of A whose packed block stays in the second-level cache.
constexpr int64_t kBlockRows = 192;
constexpr int64_t kTaskColumns =
    128;  // columns of B in the smallest piece of work a thread is given
constexpr int64_t kColumnsAtOnce = 16;  // of column-major A, that all tiles take their share of
constexpr int64_t kPanelsAtOnce = 8;    // of B, that are packed together
constexpr int64_t kFetchedBytes =
    int64_t{256} << 10;  // of packed B, from which on its panels are fetched ahead of their use:
                         // by processors with AVX-512 in time without being asked
constexpr int64_t kGrainProducts =
    1 << 20;  // multiply-adds below which a second thread costs more than it saves

// The plan of one product, after which side the vectors run along has been settled (always B's
// columns).
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
    const int64_t step = static_cast<int64_t>(sizeof(T)) * (g_.a_col == 1 ? g_.a_row : g_.a_col);
    const bool clashes = step % 1024 == 0 && g_.k > 32 && g_.m > 4;
    pack_a_ = clashes ||
              (g_.a_col == 1 ? panels_ >= 16 && g_.m > 12 && g_.k > 32 : panels_ >= 2 && g_.k > 32);
    if (first_packed_ < panels_) {
      packed_b_ = empty({panels_ - first_packed_, g_.k, kWidth}, {.dtype = dtype_of<T>});
      fetches_ = functors::kPacketBytes < 64 && packed_b_.bytes() > kFetchedBytes;
    }
  }

  void run() {
    // Blocks of near-equal heights: threads get equal numbers of tasks.
    const int64_t row_blocks = (g_.m + kBlockRows - 1) / kBlockRows;
    const int64_t column_tasks = (g_.n + kTaskColumns - 1) / kTaskColumns;
    const int64_t task =
        std::min(g_.m, kBlockRows) * std::min(g_.n, kTaskColumns) * std::min(g_.k, kGrainProducts);
    const int64_t grain = std::max<int64_t>(1, kGrainProducts / std::max<int64_t>(task, 1));
    const int64_t panel_grain = std::max<int64_t>(1, grain * kTaskColumns / kWidth);
    parallel_for(first_packed_, panels_, panel_grain,
                 [&](int64_t begin, int64_t end) { pack_panels(begin, end); });
    parallel_for(0, row_blocks * column_tasks, grain, [&](int64_t begin, int64_t end) {
      const int64_t rows = (g_.m + row_blocks - 1) / row_blocks;
      Tensor packed_a;
      if (pack_a_)
        packed_a = empty({tiles_of(rows) * kLanes<T> + rows * std::min(g_.k, kDepth)},
                         {.dtype = dtype_of<T>});
      while (begin < end) {  // tasks of one block of rows run together and share its packed rows
        const int64_t block = begin / column_tasks;
        const int64_t last = std::min(end, (block + 1) * column_tasks);
        const int64_t row = g_.m * block / row_blocks;
        run_block(row, g_.m * (block + 1) / row_blocks - row,
                  (begin - block * column_tasks) * kTaskColumns,
                  std::min(g_.n, (last - block * column_tasks) * kTaskColumns),
                  pack_a_ ? packed_a.template data<T>() : nullptr);
        begin = last;
      }
    });
  }

 private:
  static constexpr int64_t kWidth = 2 * kLanes<T>;                        // columns of a panel
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));  // of the caches
  static_assert(kTaskColumns % kWidth == 0);

  int64_t panel_columns(int64_t panel) const { return std::min(kWidth, g_.n - panel * kWidth); }
  // A narrow last panel takes one vector where that is enough.
  static int64_t panel_stride(int64_t columns) { return columns <= kLanes<T> ? kLanes<T> : kWidth; }
  T* packed_panel(int64_t panel) const {
    return packed_b_.template data<T>() + (panel - first_packed_) * g_.k * kWidth;
  }

  void pack_panels(int64_t panel, int64_t end) const {
    while (panel < end) {
      const int64_t whole = std::min({end - panel, g_.n / kWidth - panel, kPanelsAtOnce});
      if (g_.b_col != 1 || whole <= 0) {
        pack_panel(panel++);
        continue;
      }
      // A row of several panels at a time: what is read lies together.
      for (int64_t p = 0; p < g_.k; ++p) {
        const T* from = g_.b + panel * kWidth + p * g_.b_row;
        for (int64_t i = 0; i < whole; ++i) {  // a constant size is copied without a call
          std::memcpy(packed_panel(panel + i) + p * kWidth, from + i * kWidth, kWidth * sizeof(T));
        }
      }
      panel += whole;
    }
  }

  void pack_panel(int64_t panel) const {
    const int64_t columns = panel_columns(panel);
    const int64_t stride = panel_stride(columns);
    const T* from = g_.b + panel * kWidth * g_.b_col;
    T* to = packed_panel(panel);
    if (g_.b_row == 1 && g_.b_col != 1) {
      tile::transpose(from, g_.b_col, columns, g_.k, to, stride);
    } else {
      for (int64_t p = 0; p < g_.k; ++p) {
        for (int64_t j = 0; j < columns; ++j)
          to[p * stride + j] = from[p * g_.b_row + j * g_.b_col];
      }
    }
    if (columns == stride) return;
    for (int64_t p = 0; p < g_.k; ++p)
      std::fill(to + p * stride + columns, to + (p + 1) * stride, T{0});
  }

  // Rows of a tile: few rows take narrow tiles, to leave room for more panels at once.
  static int64_t tile_rows(int64_t rows) {
    if (rows <= kRows<8>) return kRows<8>;
    return rows <= 3 * kRows<4> && rows != kRows<2> ? kRows<4> : kRows<2>;
  }
  static int64_t tiles_of(int64_t rows) {
    const int64_t height = tile_rows(rows);
    return (rows + height - 1) / height;
  }

  // Rows [row, row + rows) and products [from, from + depth) of A, tile after tile.
  void pack_rows(int64_t row, int64_t rows, int64_t from, int64_t depth, T* to) const {
    const T* a = g_.a + row * g_.a_row + from * g_.a_col;
    const int64_t tiles = tiles_of(rows);
    // Where columns are what lies together, all tiles take their share of some before the next.
    const int64_t step = g_.a_row == 1 ? kColumnsAtOnce : depth;
    for (int64_t p = 0; p < depth; p += step) {
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t first = rows * i / tiles;
        const int64_t height = rows * (i + 1) / tiles - first;
        if (g_.a_col == 1 &&
            i + 1 < tiles)  // short rows far apart: nothing else fetches them ahead
          fetch_rows(row + first + height, rows * (i + 2) / tiles - first - height, from + p, step);
        tile::interleave(a + first * g_.a_row + p * g_.a_col, g_.a_row, g_.a_col, height,
                         std::min(step, depth - p),
                         to + first * depth + i * kLanes<T> + p * height);
      }
    }
  }
  // Rows [row, row + rows) of A, `length` from `column` on.
  void fetch_rows(int64_t row, int64_t rows, int64_t column, int64_t length) const {
    for (const int64_t end = row + rows; row < end; ++row) {
      for (int64_t i = 0; i < length; i += kLine)
        __builtin_prefetch(g_.a + row * g_.a_row + column + i);
    }
  }
  // A tile's rows and a vector more, which packing may write to.
  static int64_t packed_length(int64_t rows, int64_t depth) { return rows * depth + kLanes<T>; }

  // C's rows [row, row + rows) of one block, columns [column, end).
  void run_block(int64_t row, int64_t rows, int64_t column, int64_t end, T* packed_a) const {
    for (int64_t from = 0; from < g_.k; from += kDepth) {
      Strip strip;
      strip.rows = rows;
      strip.depth = std::min(kDepth, g_.k - from);
      strip.a = g_.a + row * g_.a_row + from * g_.a_col;
      strip.a_row = g_.a_row;
      strip.a_col = g_.a_col;
      if (packed_a) {
        pack_rows(row, rows, from, strip.depth, packed_a);
        strip.a = packed_a;
        strip.packed = true;
      }
      const bool last = from + strip.depth == g_.k;
      const int64_t end_panel = (end + kWidth - 1) / kWidth;
      for (int64_t panel = column / kWidth; panel < end_panel;) {
        const bool packed = panel >= first_packed_;
        const int64_t columns = panel_columns(panel);
        strip.b_row = packed ? panel_stride(columns) : g_.b_row;
        strip.b = packed ? packed_panel(panel) + from * strip.b_row
                         : g_.b + panel * kWidth + from * g_.b_row;
        strip.b_panel = packed ? g_.k * kWidth : kWidth;
        strip.to = {
            g_.c + row * g_.c_row + panel * kWidth * g_.c_col,
            g_.c_row,
            g_.c_col,
            static_cast<int>(columns),
            g_.accumulate || from > 0,
            last && g_.bias ? g_.bias + row * g_.bias_row + panel * kWidth * g_.bias_col : nullptr,
            g_.bias_row,
            g_.bias_col};
        // Whole panels of one kind ahead: few rows take several at once, to keep enough sums in
        // flight.
        const int64_t whole = std::min(packed ? g_.n / kWidth : first_packed_, end_panel) - panel;
        strip.next =
            packed && fetches_ && panel + 1 < end_panel ? strip.b + g_.k * kWidth : nullptr;
        panel += run_strip(strip, whole);
      }
    }
  }

  // Some rows of A against one or more panels of B.
  struct Strip {
    int64_t rows, depth;
    const T* a;
    int64_t a_row, a_col;  // of A where it lies
    bool packed = false;   // A is packed: tile after tile
    const T* b;
    int64_t b_row, b_panel;
    tile::Target<T> to;
    const T* next = nullptr;  // the panel that comes after, where it should be fetched ahead
  };

  // Returns how many panels it took.
  static int64_t run_strip(Strip& strip, int64_t whole) {
    const int64_t height = tile_rows(strip.rows);
    if (strip.to.columns <= kLanes<T>) return run_tiles<1>(strip);
    if (height <= kRows<8> && whole >= 4) return run_tiles<8>(strip);
    if (height <= kRows<4> && whole >= 2) return run_tiles<4>(strip);
    return run_tiles<2>(strip);
  }

  // The share of the next panel that goes with tile i of a strip.
  static void fetch_ahead(const Strip& strip, int64_t i, int64_t tiles) {
    const int64_t lines = strip.depth * kWidth / kLine;
    for (int64_t line = lines * i / tiles; line < lines * (i + 1) / tiles; ++line)
      __builtin_prefetch(strip.next + line * kLine);
  }

  // Tiles of as equal heights as can be.
  template <int Wide>
  static int64_t run_tiles(Strip& strip) {
    if constexpr (Wide > 2) strip.to.columns = Wide * kLanes<T>;
    const int64_t tiles = tiles_of(strip.rows);
    const T* a = strip.a;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t height = strip.rows * (i + 1) / tiles - strip.rows * i / tiles;
      if (strip.next) fetch_ahead(strip, i, tiles);
      tile::kernel_for<T, Wide>(height)(strip.depth, a, strip.packed ? 1 : strip.a_row,
                                        strip.packed ? height : strip.a_col, strip.b, strip.b_row,
                                        strip.b_panel, strip.to);
      a += strip.packed ? packed_length(height, strip.depth) : height * strip.a_row;
      strip.to.c += height * strip.to.row;
      if (strip.to.bias) strip.to.bias += height * strip.to.bias_row;
    }
    return Wide <= 2 ? 1 : Wide / 2;
  }

  Gemm<T> g_;
  int64_t panels_ = 0;
  int64_t first_packed_ = 0;
  bool pack_a_ = false;
  bool fetches_ = false;
  Tensor packed_b_;
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
