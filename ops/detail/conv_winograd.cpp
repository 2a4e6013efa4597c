// Convolution of 3x3 windows by Winograd's minimal filtering F(2x2, 3x3): each 4x4 tile d of the
// input and each filter g give a 2x2 tile of the output
//   Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A,
// where the product ⊙, summed over channels, becomes 16 matrix products (Lavin & Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016, §4.1). The weight's gradient is the adjoint
// in g of the same formula.
#include "core/parallel.h"
#include "ops/detail/conv_slab.h"
#include "ops/detail/conv_tile.h"
#include "ops/detail/conv_ways.h"
#include "ops/detail/copies.h"

#include <algorithm>
#include <optional>

namespace weft::detail::conv {
namespace {

using V = Packet<float>;
constexpr int64_t kPlanes = 16;
// Registers of 64 bytes come with second-level caches of 1 MiB and more, others with half of that.
constexpr int64_t kLarge = functors::kPacketBytes == 64 ? 2 : 1;
constexpr int64_t kTiles = 48 * kLarge;        // of a slab: its planes stay in that cache
constexpr int64_t kTilesAtMost = 96 * kLarge;  // where one row of tiles has more
constexpr int64_t kFewSlabs = 16;
constexpr int64_t kSkew = 16;                // floats that keep the planes off the same cache sets
constexpr int64_t kOutputRun = 64 * kLarge;  // channels of a weight gradient that one thread sums
constexpr int64_t kLane = kLanes<float>;

// Bᵀ applied to a column of four values: 1 0 -1 0 / 0 1 1 0 / 0 -1 1 0 / 0 1 0 -1.
inline void input_transform(V a, V b, V c, V d, V* out) {
  out[0] = a - c;
  out[1] = b + c;
  out[2] = c - b;
  out[3] = b - d;
}
// G applied to three: 1 0 0 / ½ ½ ½ / ½ -½ ½ / 0 0 1.
inline void filter_transform(V a, V b, V c, V* out) {
  const V half = broadcast<V>(0.5f);
  const V sum = a + c;
  out[0] = a;
  out[1] = half * (sum + b);
  out[2] = half * (sum - b);
  out[3] = c;
}
// Aᵀ applied to four: 1 1 1 0 / 0 1 -1 -1.
inline void output_transform(V a, V b, V c, V d, V* out) {
  out[0] = a + (b + c);
  out[1] = (b - c) - d;
}
// A applied to two, the adjoint of the above.
inline void gradient_transform(V a, V b, V* out) {
  out[0] = a;
  out[1] = a + b;
  out[2] = a - b;
  out[3] = V{} - b;
}

// Where the tiles of one slab lie. A slab is a run of tile rows counted over all images, or part of
// one row.
struct TileGrid {
  std::array<int64_t, 2> out{};  // pixels of the target
  int64_t images = 0;
  int64_t rows = 0, columns = 0;   // tiles of an image
  int64_t slab_rows = 1;           // tile rows of a slab
  int64_t parts = 1;               // of a tile row, when it is too long for one slab
  ConvAxis row_axis, column_axis;  // of the whole image: windows of 4, two apart

  TileGrid(int64_t count, const std::array<int64_t, 2>& out_size,
           const std::array<int64_t, 2>& padding)
      : out(out_size), images(count), rows((out_size[0] + 1) / 2), columns((out_size[1] + 1) / 2) {
    // Near-equal slabs, and a few at least, so that threads get equal shares.
    const int64_t all = images * rows;
    const int64_t most = std::clamp<int64_t>((kTiles + columns / 2) / columns, 1, all);
    int64_t runs = (all + most - 1) / most;
    if (runs < kFewSlabs) runs = std::min(all, (runs + 3) / 4 * 4);
    slab_rows = (all + runs - 1) / runs;
    if (columns > kTilesAtMost) parts = (columns + kTiles - 1) / kTiles;
    row_axis = {.outputs = rows, .in_start = -padding[0], .in_step = 2, .offsets = {0, 1, 2, 3}};
    column_axis = {
        .outputs = columns, .in_start = -padding[1], .in_step = 2, .offsets = {0, 1, 2, 3}};
  }
  int64_t slabs() const { return (images * rows + slab_rows - 1) / slab_rows * parts; }
  int64_t tiles_at_most() const { return slab_rows * ((columns + parts - 1) / parts); }
};

struct Tile {
  int64_t image, row, column;  // row and column of its first pixel
  int64_t height, width;       // pixels inside the target: 1 or 2
};

// The part of a slab that a thread works on: reads windows of the source and lists the tiles.
class TileReader {
 public:
  TileReader(const ConvImages<const float>& source, const TileGrid& grid)
      : source_(source), grid_(grid) {
    columns_ = grid.column_axis;
    columns_.outputs = (grid.columns + grid.parts - 1) / grid.parts;
  }

  // from()[t] is the address of tile t's window in slab s, tiles()[t] its place.
  void read(int64_t s) {
    const int64_t part = s % grid_.parts;
    const int64_t first = grid_.columns * part / grid_.parts;
    const int64_t count = grid_.columns * (part + 1) / grid_.parts - first;
    if (!reader_ || count != columns_.outputs ||
        columns_.in_start != grid_.column_axis.in_start + 2 * first) {
      columns_.outputs = count;
      columns_.in_start = grid_.column_axis.in_start + 2 * first;
      reader_.emplace(source_, grid_.row_axis, columns_, grid_.slab_rows);
    }
    const int64_t row = s / grid_.parts * grid_.slab_rows;
    const int64_t rows = std::min(grid_.slab_rows, grid_.images * grid_.rows - row);
    const Slab<float> slab = reader_->read(row, rows);
    pitch_ = slab.pitch;
    from_.clear();
    tiles_.clear();
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t y = (row + r) % grid_.rows * 2;
      for (int64_t c = 0; c < count; ++c) {
        const int64_t x = 2 * (first + c);
        from_.push_back(slab.data + slab.row[r] + 2 * c * slab.pixel);
        tiles_.push_back({(row + r) / grid_.rows, y, x, std::min<int64_t>(2, grid_.out[0] - y),
                          std::min<int64_t>(2, grid_.out[1] - x)});
      }
    }
  }
  const std::vector<const float*>& from() const { return from_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  int64_t count() const { return static_cast<int64_t>(tiles_.size()); }

  // planes[i][t][channels] = Bᵀ d B of every tile, planes being `stride` floats apart.
  void transform(float* planes, int64_t stride) const {
    const int64_t channels = source_.count;
    for (size_t t = 0; t < from_.size(); ++t) {
      for (int64_t c = 0; c < channels; c += kLane) {
        V columns[4][4];
        for (int64_t j = 0; j < 4; ++j) {
          const float* d = from_[t] + j * channels + c;
          input_transform(load<V>(d), load<V>(d + pitch_), load<V>(d + 2 * pitch_),
                          load<V>(d + 3 * pitch_), columns[j]);
        }
        float* out = planes + static_cast<int64_t>(t) * channels + c;
        for (int64_t i = 0; i < 4; ++i) {
          V row[4];
          input_transform(columns[0][i], columns[1][i], columns[2][i], columns[3][i], row);
          for (int64_t j = 0; j < 4; ++j)
            store(out + (4 * i + j) * stride, row[j]);
        }
      }
    }
  }

 private:
  const ConvImages<const float>& source_;
  const TileGrid& grid_;
  ConvAxis columns_;
  std::optional<SlabReader<float>> reader_;
  std::vector<const float*> from_;
  std::vector<Tile> tiles_;
  int64_t pitch_ = 0;
};

// Filters of `sources` by `targets` channels, transformed: for each plane, panels as pixel_tile
// reads them. `flip` turns them round, as the gradient with respect to the input needs them.
Tensor transformed_filters(const float* weight, int64_t target_stride, int64_t source_stride,
                           int64_t row_stride, int64_t column_stride, int64_t targets,
                           int64_t sources, bool flip) {
  ++copy_counts().weights;
  const Tensor result = empty({kPlanes, targets * sources});
  const int64_t panels = (targets + kPanel<float> - 1) / kPanel<float>;
  parallel_for(0, panels, std::max<int64_t>(1, 1024 / sources), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kPanel<float>;
      const int64_t width = std::min(kPanel<float>, targets - first);
      for (int64_t s = 0; s < sources; ++s) {
        for (int64_t k = 0; k < width; k += kLane) {
          alignas(functors::kPacketBytes) float taps[9][kLane];
          for (int64_t tap = 0; tap < 9; ++tap) {
            const int64_t at = flip ? 8 - tap : tap;
            const float* from = weight + (first + k) * target_stride + s * source_stride +
                                at / 3 * row_stride + at % 3 * column_stride;
            for (int64_t i = 0; i < kLane; ++i)
              taps[tap][i] = from[i * target_stride];
          }
          V columns[3][4];
          for (int64_t j = 0; j < 3; ++j) {
            filter_transform(load<V>(taps[j]), load<V>(taps[3 + j]), load<V>(taps[6 + j]),
                             columns[j]);
          }
          float* out = result.data<float>() + first * sources + s * width + k;
          for (int64_t i = 0; i < 4; ++i) {
            V row[4];
            filter_transform(columns[0][i], columns[1][i], columns[2][i], row);
            for (int64_t j = 0; j < 4; ++j)
              store(out + (4 * i + j) * targets * sources, row[j]);
          }
        }
      }
    }
  });
  return result;
}

// The 16 matrix products of one slab: products[i][t][targets] = planes[i][t][sources] · filters[i].
void multiply_planes(const float* planes, int64_t stride, int64_t tiles, int64_t sources,
                     const float* filters, int64_t targets, float* products,
                     int64_t product_stride) {
  alignas(functors::kPacketBytes) static constexpr float kZeros[kPanel<float>] = {};
  static constexpr int64_t kStart = 0;
  const Segments run{&kStart, 1, sources};
  const int64_t parts = tile_parts(tiles);
  std::array<const float*, kTileRows> from;
  std::array<float*, kTileRows> to;
  for (int64_t i = 0; i < kPlanes; ++i) {
    for (int64_t k = 0; k < targets; k += kPanel<float>) {
      const int64_t valid = std::min(kPanel<float>, targets - k);
      const auto& kernels = kPixelTiles<float>[valid > kLane ? 1 : 0];
      const float* panel = filters + (i * targets + k) * sources;
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t first = tile_begin(tiles, p, parts);
        const int64_t number = tile_begin(tiles, p + 1, parts) - first;
        for (int64_t m = 0; m < number; ++m) {
          from[static_cast<size_t>(m)] = planes + i * stride + (first + m) * sources;
          to[static_cast<size_t>(m)] = products + i * product_stride + (first + m) * targets + k;
        }
        kernels[static_cast<size_t>(number - 1)](from.data(), run, panel, kZeros, to.data(), valid);
      }
    }
  }
}

// The target's pixels of one tile: Aᵀ m A + bias.
void write_tile(const float* products, int64_t stride, const Tile& tile,
                const ConvImages<float>& target, const float* bias) {
  float* out =
      target.data +
      ((tile.image * target.size[0] + tile.row) * target.size[1] + tile.column) * target.channels;
  const int64_t line = target.size[1] * target.channels;
  for (int64_t c = 0; c < target.channels; c += kLane) {
    V columns[4][2];
    for (int64_t j = 0; j < 4; ++j) {
      const float* m = products + j * stride + c;
      output_transform(load<V>(m), load<V>(m + 4 * stride), load<V>(m + 8 * stride),
                       load<V>(m + 12 * stride), columns[j]);
    }
    const V add = load<V>(bias + c);
    for (int64_t i = 0; i < tile.height; ++i) {
      V row[2];
      output_transform(columns[0][i], columns[1][i], columns[2][i], columns[3][i], row);
      store(out + i * line + c, row[0] + add);
      if (tile.width > 1) store(out + i * line + target.channels + c, row[1] + add);
    }
  }
}

// A window's padding is how far the first window reaches out of the source.
void correlate(const ConvImages<const float>& source, const ConvImages<float>& target,
               const std::array<int64_t, 2>& padding, const Tensor& filters, const Tensor& bias) {
  const TileGrid grid(source.images, target.size, padding);
  const int64_t most = grid.tiles_at_most();
  const int64_t stride = most * source.channels + kSkew;
  const int64_t product_stride = most * target.channels + kSkew;
  parallel_for(0, grid.slabs(), 1, [&](int64_t begin, int64_t end) {
    TileReader reader(source, grid);
    const Tensor planes = empty({kPlanes * stride});
    const Tensor products = empty({kPlanes * product_stride});
    for (int64_t s = begin; s < end; ++s) {
      reader.read(s);
      reader.transform(planes.data<float>(), stride);
      multiply_planes(planes.data<float>(), stride, reader.count(), source.channels,
                      filters.data<float>(), target.channels, products.data<float>(),
                      product_stride);
      for (int64_t t = 0; t < reader.count(); ++t) {
        write_tile(products.data<float>() + t * target.channels, product_stride,
                   reader.tiles()[static_cast<size_t>(t)], target, bias.data<float>());
      }
    }
  });
}

// planes[i][t][outputs] = A g Aᵀ of every tile of the gradient, whose pixels outside the image are
// zero.
void transform_gradient(const ConvImages<const float>& gradient, const std::vector<Tile>& tiles,
                        float* planes, int64_t stride) {
  const int64_t line = gradient.size[1] * gradient.channels;
  for (size_t t = 0; t < tiles.size(); ++t) {
    const Tile& tile = tiles[t];
    const float* from =
        gradient.data +
        ((tile.image * gradient.size[0] + tile.row) * gradient.size[1] + tile.column) *
            gradient.channels +
        gradient.first;
    for (int64_t c = 0; c < gradient.count; c += kLane) {
      V columns[2][4];
      for (int64_t j = 0; j < 2; ++j) {
        const float* g = from + j * gradient.channels + c;
        const bool inside = j < tile.width;
        const V above = inside ? load<V>(g) : V{};
        const V below = inside && tile.height > 1 ? load<V>(g + line) : V{};
        gradient_transform(above, below, columns[j]);
      }
      float* out = planes + static_cast<int64_t>(t) * gradient.count + c;
      for (int64_t i = 0; i < 4; ++i) {
        V row[4];
        gradient_transform(columns[0][i], columns[1][i], row);
        for (int64_t j = 0; j < 4; ++j)
          store(out + (4 * i + j) * stride, row[j]);
      }
    }
  }
}

// sums[i][sources][pitch] += planes[i]ᵀ · gradients[i], for `outputs` columns.
void add_products(const float* planes, int64_t stride, const float* gradients,
                  int64_t gradient_stride, int64_t tiles, int64_t sources, int64_t outputs,
                  float* sums, int64_t pitch) {
  static constexpr int64_t kStart = 0;
  const PixelRows rows{&kStart, 1, tiles, sources, outputs};
  const int64_t parts = tile_parts(sources);
  std::array<const float*, kTileRows> from;
  for (int64_t i = 0; i < kPlanes; ++i) {
    for (int64_t k = 0; k < outputs; k += kPanel<float>) {
      const auto& kernels = kTapTiles<float, true>[outputs - k > kLane ? 1 : 0];
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t first = tile_begin(sources, p, parts);
        const int64_t number = tile_begin(sources, p + 1, parts) - first;
        for (int64_t m = 0; m < number; ++m)
          from[static_cast<size_t>(m)] = planes + i * stride + first + m;
        kernels[static_cast<size_t>(number - 1)](from.data(), rows,
                                                 gradients + i * gradient_stride + k,
                                                 sums + (i * sources + first) * pitch + k, pitch);
      }
    }
  }
}

// Gᵀ u G of one packet of outputs: u and dw by [tap].
void filter_gradient(const V (&u)[4][4], V (&taps)[3][3]) {
  const auto adjoint = [](V a, V b, V c, V d, V* out) {
    const V half = broadcast<V>(0.5f);
    out[0] = a + half * (b + c);
    out[1] = half * (b - c);
    out[2] = half * (b + c) + d;
  };
  V rows[4][3];
  for (int64_t j = 0; j < 4; ++j)
    adjoint(u[0][j], u[1][j], u[2][j], u[3][j], rows[j]);
  for (int64_t i = 0; i < 3; ++i)
    adjoint(rows[0][i], rows[1][i], rows[2][i], rows[3][i], taps[i]);
}

}  // namespace

void winograd_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                      const Tensor& bias, const Tensor& y) {
  const Strides& s = weight.strides();
  const Tensor filters = transformed_filters(weight.data<float>(), s[0], s[1], s[2], s[3],
                                             shape.outputs, shape.channels, false);
  correlate({x.data<float>(), shape.images, shape.in, shape.channels, 0, shape.channels},
            {y.data<float>(), shape.images, shape.out, shape.outputs, 0, shape.outputs},
            shape.padding, filters, padded_bias<float>(bias, 0, shape.outputs));
}

void winograd_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                            const Tensor& bias, const Tensor& dx) {
  const Strides& s = weight.strides();
  const Tensor filters = transformed_filters(weight.data<float>(), s[1], s[0], s[2], s[3],
                                             shape.channels, shape.outputs, true);
  correlate({g.data<float>(), shape.images, shape.out, shape.outputs, 0, shape.outputs},
            {dx.data<float>(), shape.images, shape.in, shape.channels, 0, shape.channels},
            {2 - shape.padding[0], 2 - shape.padding[1]}, filters,
            padded_bias<float>(bias, 0, shape.channels));
}

void winograd_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                               const Tensor& dw, const Tensor& db) {
  const TileGrid grid(shape.images, shape.out, shape.padding);
  const int64_t sources = shape.channels;
  const int64_t targets = shape.outputs;
  const int64_t most = grid.tiles_at_most();
  const int64_t elements = kPlanes * sources * targets + targets;  // the last ones are the bias's
  const SumBlocks blocks(grid.slabs(), elements);
  const int64_t runs = (targets + kOutputRun - 1) / kOutputRun;
  const Tensor partial = empty({blocks.count, elements});
  const ConvImages<const float> source{x.data<float>(), shape.images, shape.in, sources, 0,
                                       sources};
  parallel_for(0, blocks.count * runs, 1, [&](int64_t begin, int64_t end) {
    TileReader reader(source, grid);
    const int64_t stride = most * sources + kSkew;
    const int64_t gradient_stride = most * std::min(kOutputRun, targets) + kSkew;
    const Tensor planes = empty({kPlanes * stride});
    const Tensor gradients = empty({kPlanes * gradient_stride});
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / runs;
      const int64_t first = i % runs * kOutputRun;
      const int64_t count = std::min(kOutputRun, targets - first);
      const ConvImages<const float> gradient{g.data<float>(), shape.images, shape.out,
                                             targets,         first,        count};
      float* sums = partial.data<float>() + block * elements;
      float* bias = sums + kPlanes * sources * targets + first;
      for (int64_t row = 0; row < kPlanes * sources; ++row)
        std::fill_n(sums + row * targets + first, count, 0.0f);
      std::fill_n(bias, count, 0.0f);
      for (int64_t s = blocks.begin(block); s < blocks.begin(block + 1); ++s) {
        reader.read(s);
        reader.transform(planes.data<float>(), stride);
        transform_gradient(gradient, reader.tiles(), gradients.data<float>(), gradient_stride);
        add_products(planes.data<float>(), stride, gradients.data<float>(), gradient_stride,
                     reader.count(), sources, count, sums + first, targets);
        // The products' plane (1, 1) of A g Aᵀ is the sum of a tile's gradient.
        add_columns(gradients.data<float>() + 5 * gradient_stride, reader.count(), count, count,
                    bias);
      }
    }
  });
  const Strides& strides = dw.strides();
  parallel_for(0, sources, std::max<int64_t>(1, 1024 / targets), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t k = 0; k < targets; k += kLane) {
        V u[4][4] = {};
        for (int64_t b = 0; b < blocks.count; ++b) {
          const float* from = partial.data<float>() + b * elements + c * targets + k;
          for (int64_t i = 0; i < kPlanes; ++i)
            u[i / 4][i % 4] += load<V>(from + i * sources * targets);
        }
        V taps[3][3];
        filter_gradient(u, taps);
        for (int64_t tap = 0; tap < 9; ++tap) {
          float* to = dw.data<float>() + k * strides[0] + c * strides[1] + tap / 3 * strides[2] +
                      tap % 3 * strides[3];
          for (int64_t i = 0; i < kLane; ++i)
            to[i * strides[0]] = taps[tap / 3][tap % 3][i];
        }
      }
    }
  });
  if (!db.defined()) return;
  std::fill_n(db.data<float>(), targets, 0.0f);
  for (int64_t b = 0; b < blocks.count; ++b) {
    const float* from = partial.data<float>() + (b + 1) * elements - targets;
    for (int64_t k = 0; k < targets; ++k)
      db.data<float>()[k] += from[k];
  }
}

}  // namespace weft::detail::conv
