// Direct convolution. The sums of a tile of pixels and channels stay in registers while the windows
// stream by; weights are packed into panels of as many channels once a call.
#include "core/parallel.h"
#include "ops/detail/conv_slab.h"
#include "ops/detail/conv_tile.h"
#include "ops/detail/conv_ways.h"
#include "ops/detail/copies.h"

#include <algorithm>

namespace weft::detail::conv {
namespace {

constexpr int64_t kWindows = 192;        // of a slab: enough to pay for reading the weights
constexpr int64_t kOutputRun = 64;       // channels of a weight gradient that one thread sums
constexpr int64_t kThreadWork = 200000;  // multiplications worth a thread

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// How a weight is read as [target channel][tap row][tap column][source channel].
template <class T>
struct WeightView {
  const T* data;
  int64_t target, source, row, column;  // strides
};

// Weights of `targets` channels in panels: for each, rows (tap row, tap column, source channel) of
// its channels, zero where the last panel has none left.
template <class T>
void pack(const WeightView<T>& weight, int64_t targets, int64_t sources, const ConvAxis& rows,
          const ConvAxis& columns, T* out) {
  const int64_t taps = rows.taps() * columns.taps() * sources;
  const int64_t panels = (targets + kPanel<T> - 1) / kPanel<T>;
  parallel_for(0, panels, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, taps * kPanel<T>)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t p = begin; p < end; ++p) {
                   const int64_t first = p * kPanel<T>;
                   const int64_t valid = std::min(kPanel<T>, targets - first);
                   const int64_t width = round_up(valid, kLanes<T>);
                   T* to = out + first * taps;
                   for (const int64_t row : rows.weights) {
                     for (const int64_t column : columns.weights) {
                       const T* from = weight.data + first * weight.target + row * weight.row +
                                       column * weight.column;
                       for (int64_t c = 0; c < sources; ++c, from += weight.source, to += width) {
                         for (int64_t k = 0; k < valid; ++k)
                           to[k] = from[k * weight.target];
                         for (int64_t k = valid; k < width; ++k)
                           to[k] = 0;
                       }
                     }
                   }
                 }
               });
}

// The pixels of one slab: where each window begins, where its result goes.
template <class T>
struct Pixels {
  std::vector<const T*> from;
  std::vector<T*> to;
};

template <class T>
void find_pixels(const Slab<T>& slab, int64_t first_row, int64_t count, const ConvAxis& rows,
                 const ConvAxis& columns, const ConvImages<T>& target, Pixels<T>& pixels) {
  pixels.from.clear();
  pixels.to.clear();
  for (int64_t r = 0; r < count; ++r) {
    const int64_t image = (first_row + r) / rows.outputs;
    const int64_t y = rows.out_start + (first_row + r) % rows.outputs * rows.out_step;
    const T* from = slab.data + slab.row[r];
    T* to = target.data +
            ((image * target.size[0] + y) * target.size[1] + columns.out_start) * target.channels +
            target.first;
    for (int64_t c = 0; c < columns.outputs; ++c) {
      pixels.from.push_back(from + c * columns.in_step * slab.pixel);
      pixels.to.push_back(to + c * columns.out_step * target.channels);
    }
  }
}

// Offsets of the runs that make up a window.
std::vector<int64_t> window_segments(const ConvAxis& rows, const ConvAxis& columns, int64_t pitch,
                                     int64_t pixel) {
  std::vector<int64_t> segments;
  for (const int64_t row : rows.offsets) {
    if (columns.dense()) {
      segments.push_back(row * pitch);
    } else {
      for (const int64_t column : columns.offsets)
        segments.push_back(row * pitch + column * pixel);
    }
  }
  return segments;
}

// One group's correlation along two axes: every target pixel they reach is written. `panels` as
// pack makes them; `bias` is padded to whole panels.
template <class T>
void correlate(const ConvImages<const T>& source, const ConvImages<T>& target, const ConvAxis& rows,
               const ConvAxis& columns, const T* panels, const T* bias) {
  const int64_t all_rows = source.images * rows.outputs;
  const int64_t taps = rows.taps() * columns.taps() * source.count;
  const int64_t slab =
      std::min(all_rows, slab_rows(rows, columns, source.count, sizeof(T), kWindows));
  const int64_t slabs = (all_rows + slab - 1) / slab;
  const int64_t work = slab * columns.outputs * target.count * std::max<int64_t>(taps, 1);
  parallel_for(0, slabs, std::max<int64_t>(1, kThreadWork / work), [&](int64_t begin, int64_t end) {
    SlabReader<T> reader(source, rows, columns, slab);
    Pixels<T> pixels;
    std::vector<int64_t> segments;
    std::array<T*, kTileRows> to;
    for (int64_t s = begin; s < end; ++s) {
      const int64_t count = std::min(slab, all_rows - s * slab);
      const Slab<T> windows = reader.read(s * slab, count);
      if (s == begin) segments = window_segments(rows, columns, windows.pitch, windows.pixel);
      find_pixels(windows, s * slab, count, rows, columns, target, pixels);
      const Segments runs{segments.data(), static_cast<int64_t>(segments.size()),
                          columns.dense() ? columns.taps() * source.count : source.count};
      const auto all = static_cast<int64_t>(pixels.from.size());
      const int64_t parts = tile_parts(all);
      for (int64_t k = 0; k < target.count; k += kPanel<T>) {
        const int64_t valid = std::min(kPanel<T>, target.count - k);
        const auto& tiles = kPixelTiles<T>[valid > kLanes<T> ? 1 : 0];
        for (int64_t p = 0; p < parts; ++p) {
          const int64_t first = tile_begin(all, p, parts);
          const int64_t number = tile_begin(all, p + 1, parts) - first;
          for (int64_t m = 0; m < number; ++m)
            to[static_cast<size_t>(m)] = pixels.to[static_cast<size_t>(first + m)] + k;
          tiles[static_cast<size_t>(number - 1)](pixels.from.data() + first, runs,
                                                 panels + k * taps, bias + k, to.data(), valid);
        }
      }
    }
  });
}

// The weight's gradient of one group over a run of slabs and of output channels [first, first +
// outputs): sums[taps + 1][pitch], whose last row is the bias's.
template <class T>
void sum_slabs(const ConvImages<const T>& source, const ConvImages<const T>& gradient,
               const ConvAxis& rows, const ConvAxis& columns, int64_t slab, int64_t begin,
               int64_t end, int64_t first, int64_t outputs, T* sums, int64_t pitch) {
  const int64_t all_rows = source.images * rows.outputs;
  const int64_t taps = rows.taps() * columns.taps() * source.count;
  SlabReader<T> reader(source, rows, columns, slab);
  std::vector<const T*> tap_at(static_cast<size_t>(taps));
  const int64_t rest =
      outputs % kLanes<T>;  // channels that do not fill a vector are copied to where they do
  const int64_t padded_from = outputs - outputs % kPanel<T>;
  const int64_t padded_width = round_up(outputs - padded_from, kLanes<T>);
  std::vector<T> padded(rest == 0 ? 0 : static_cast<size_t>(slab * columns.outputs * padded_width),
                        T(0));
  for (int64_t s = begin; s < end; ++s) {
    const int64_t count = std::min(slab, all_rows - s * slab);
    const Slab<T> windows = reader.read(s * slab, count);
    size_t at = 0;
    for (const int64_t row : rows.offsets) {
      for (const int64_t column : columns.offsets) {
        const T* from = windows.data + row * windows.pitch + column * windows.pixel;
        for (int64_t c = 0; c < source.count; ++c)
          tap_at[at++] = from + c;
      }
    }
    const T* g =
        gradient.data + s * slab * columns.outputs * gradient.channels + gradient.first + first;
    const int64_t number = count * columns.outputs;
    add_columns(g, number, gradient.channels, outputs, sums + taps * pitch);
    if (rest != 0) {
      for (int64_t p = 0; p < number; ++p) {
        std::copy_n(g + p * gradient.channels + padded_from, outputs - padded_from,
                    padded.data() + p * padded_width);
      }
    }
    const int64_t parts = tile_parts(taps);
    for (int64_t k = 0; k < outputs; k += kPanel<T>) {
      const int64_t valid = std::min(kPanel<T>, outputs - k);
      const bool copied = rest != 0 && k == padded_from;
      const auto& tiles = kTapTiles<T, false>[valid > kLanes<T> ? 1 : 0];
      const PixelRows pixels{windows.row, count, columns.outputs, columns.in_step * windows.pixel,
                             copied ? padded_width : gradient.channels};
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t tap = tile_begin(taps, p, parts);
        const int64_t tap_count = tile_begin(taps, p + 1, parts) - tap;
        tiles[static_cast<size_t>(tap_count - 1)](tap_at.data() + tap, pixels,
                                                  copied ? padded.data() : g + k,
                                                  sums + tap * pitch + k, pitch);
      }
    }
  }
}

}  // namespace

template <class T>
Tensor padded_bias(const Tensor& bias, int64_t first, int64_t count) {
  const int64_t padded = round_up(count, kPanel<T>);
  const Tensor result = empty({padded}, {.dtype = dtype_of<T>});
  std::fill_n(result.data<T>(), padded, T(0));
  if (bias.defined()) std::copy_n(bias.data<T>() + first, count, result.data<T>());
  return result;
}
template Tensor padded_bias<float>(const Tensor&, int64_t, int64_t);
template Tensor padded_bias<double>(const Tensor&, int64_t, int64_t);

template <class T>
void direct_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& y) {
  const ConvAxis rows = forward_axis(shape, 0);
  const ConvAxis columns = forward_axis(shape, 1);
  const int64_t sources = shape.group_channels();
  const int64_t targets = shape.group_outputs();
  const int64_t taps = rows.taps() * columns.taps() * sources;
  ++copy_counts().weights;
  const Tensor panels = empty({taps * round_up(targets, kLanes<T>)}, {.dtype = dtype_of<T>});
  const Strides& strides = weight.strides();
  for (int64_t g = 0; g < shape.groups; ++g) {
    const WeightView<T> view{weight.data<T>() + g * targets * strides[0], strides[0], strides[1],
                             strides[2], strides[3]};
    pack(view, targets, sources, rows, columns, panels.data<T>());
    const Tensor group_bias = padded_bias<T>(bias, g * targets, targets);
    const ConvImages<const T> source{x.data<T>(),    shape.images, shape.in,
                                     shape.channels, g * sources,  sources};
    const ConvImages<T> target{y.data<T>(),   shape.images, shape.out,
                               shape.outputs, g * targets,  targets};
    correlate(source, target, rows, columns, panels.data<T>(), group_bias.data<T>());
  }
}

template <class T>
void direct_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                          const Tensor& bias, const Tensor& dx) {
  const int64_t sources = shape.group_outputs();
  const int64_t targets = shape.group_channels();
  const int64_t most = shape.kernel[0] * shape.kernel[1] * sources * round_up(targets, kLanes<T>);
  ++copy_counts().weights;
  const Tensor panels = empty({most}, {.dtype = dtype_of<T>});
  const Strides& strides = weight.strides();
  const std::vector<ConvAxis> columns = backward_axes(shape, 1);
  for (const ConvAxis& row_phase : backward_axes(shape, 0)) {
    for (const ConvAxis& column_phase : columns) {
      for (int64_t group = 0; group < shape.groups; ++group) {
        const WeightView<T> view{weight.data<T>() + group * sources * strides[0], strides[1],
                                 strides[0], strides[2], strides[3]};
        pack(view, targets, sources, row_phase, column_phase, panels.data<T>());
        const Tensor group_bias = padded_bias<T>(bias, group * targets, targets);
        const ConvImages<const T> source{g.data<T>(),   shape.images,    shape.out,
                                         shape.outputs, group * sources, sources};
        const ConvImages<T> target{dx.data<T>(),   shape.images,    shape.in,
                                   shape.channels, group * targets, targets};
        correlate(source, target, row_phase, column_phase, panels.data<T>(), group_bias.data<T>());
      }
    }
  }
}

template <class T>
void direct_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                             const Tensor& dw, const Tensor& db) {
  const ConvAxis rows = forward_axis(shape, 0);
  const ConvAxis columns = forward_axis(shape, 1);
  const int64_t sources = shape.group_channels();
  const int64_t targets = shape.group_outputs();
  const int64_t taps = rows.taps() * columns.taps() * sources;
  const int64_t all_rows = shape.images * rows.outputs;
  const int64_t slab = std::min(all_rows, slab_rows(rows, columns, sources, sizeof(T), kWindows));
  const int64_t pitch = round_up(targets, kLanes<T>);
  const int64_t elements = (taps + 1) * pitch;
  const SumBlocks blocks((all_rows + slab - 1) / slab, elements);
  const int64_t runs = (targets + kOutputRun - 1) / kOutputRun;
  const Tensor partial = empty({blocks.count, elements}, {.dtype = dtype_of<T>});
  const Strides& strides = dw.strides();
  for (int64_t group = 0; group < shape.groups; ++group) {
    const ConvImages<const T> source{x.data<T>(),    shape.images,    shape.in,
                                     shape.channels, group * sources, sources};
    const ConvImages<const T> gradient{g.data<T>(),   shape.images,    shape.out,
                                       shape.outputs, group * targets, targets};
    const int64_t work = all_rows * columns.outputs * taps * targets / (blocks.count * runs);
    parallel_for(0, blocks.count * runs,
                 std::max<int64_t>(1, kThreadWork / std::max<int64_t>(work, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t block = i / runs;
                     const int64_t first = i % runs * kOutputRun;
                     const int64_t count = std::min(kOutputRun, targets - first);
                     T* sums = partial.data<T>() + block * elements + first;
                     for (int64_t row = 0; row <= taps; ++row)
                       std::fill_n(sums + row * pitch, round_up(count, kLanes<T>), T(0));
                     sum_slabs(source, gradient, rows, columns, slab, blocks.begin(block),
                               blocks.begin(block + 1), first, count, sums, pitch);
                   }
                 });
    // The blocks' sums, added in their order, on their way into dw's own layout.
    parallel_for(0, taps + 1, std::max<int64_t>(1, 8192 / (targets * blocks.count)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t tap = begin; tap < end; ++tap) {
                     T* sums = partial.data<T>() + tap * pitch;
                     for (int64_t b = 1; b < blocks.count; ++b) {
                       for (int64_t k = 0; k < targets; ++k)
                         sums[k] += sums[b * elements + k];
                     }
                     if (tap == taps) {
                       if (db.defined()) std::copy_n(sums, targets, db.data<T>() + group * targets);
                       continue;
                     }
                     const int64_t at = tap / sources;
                     T* to = dw.data<T>() + group * targets * strides[0] +
                             tap % sources * strides[1] + at / columns.taps() * strides[2] +
                             at % columns.taps() * strides[3];
                     for (int64_t k = 0; k < targets; ++k)
                       to[k * strides[0]] = sums[k];
                   }
                 });
  }
}

#define WEFT_INSTANTIATE(T)                                                                      \
  template void direct_forward<T>(const ConvShape&, const Tensor&, const Tensor&, const Tensor&, \
                                  const Tensor&);                                                \
  template void direct_backward_data<T>(const ConvShape&, const Tensor&, const Tensor&,          \
                                        const Tensor&, const Tensor&);                           \
  template void direct_backward_weights<T>(const ConvShape&, const Tensor&, const Tensor&,       \
                                           const Tensor&, const Tensor&);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::detail::conv
