// Depthwise convolution: channels do not mix, so vectors run along them and a window is a short sum
// of products.
#include "core/parallel.h"
#include "ops/detail/conv_slab.h"
#include "ops/detail/conv_tile.h"
#include "ops/detail/conv_ways.h"

#include <algorithm>

namespace weft::detail::conv {
namespace {

constexpr int64_t kWindows = 64;
constexpr int64_t kThreadWork = 100000;

// The weight as [tap][channel], taps in the order of the axes.
template <class T>
Tensor tap_major(const Tensor& weight, const ConvAxis& rows, const ConvAxis& columns) {
  const int64_t channels = weight.size(0);
  const Tensor result =
      empty({std::max<int64_t>(1, rows.taps() * columns.taps()), channels}, {.dtype = dtype_of<T>});
  T* to = result.data<T>();
  const Strides& strides = weight.strides();
  for (const int64_t row : rows.weights) {
    for (const int64_t column : columns.weights) {
      const T* from = weight.data<T>() + row * strides[2] + column * strides[3];
      for (int64_t c = 0; c < channels; ++c)
        *to++ = from[c * strides[0]];
    }
  }
  return result;
}

std::vector<int64_t> tap_offsets(const ConvAxis& rows, const ConvAxis& columns, int64_t pitch,
                                 int64_t pixel) {
  std::vector<int64_t> offsets;
  for (const int64_t row : rows.offsets) {
    for (const int64_t column : columns.offsets)
      offsets.push_back(row * pitch + column * pixel);
  }
  return offsets;
}

template <class T>
void correlate(const ConvImages<const T>& source, const ConvImages<T>& target, const ConvAxis& rows,
               const ConvAxis& columns, const Tensor& weight, const T* bias) {
  const int64_t all_rows = source.images * rows.outputs;
  const int64_t channels = source.channels;
  const int64_t slab = std::min(all_rows, slab_rows(rows, columns, channels, sizeof(T), kWindows));
  const int64_t slabs = (all_rows + slab - 1) / slab;
  const int64_t work =
      slab * columns.outputs * channels * std::max<int64_t>(1, rows.taps() * columns.taps());
  const T* weights = weight.data<T>();
  parallel_for(0, slabs, std::max<int64_t>(1, kThreadWork / work), [&](int64_t begin, int64_t end) {
    SlabReader<T> reader(source, rows, columns, slab);
    for (int64_t s = begin; s < end; ++s) {
      const int64_t count = std::min(slab, all_rows - s * slab);
      const Slab<T> windows = reader.read(s * slab, count);
      const std::vector<int64_t> taps = tap_offsets(rows, columns, windows.pitch, windows.pixel);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t image = (s * slab + r) / rows.outputs;
        const int64_t y = rows.out_start + (s * slab + r) % rows.outputs * rows.out_step;
        for (int64_t w = 0; w < columns.outputs; ++w) {
          const T* from = windows.data + windows.row[r] + w * columns.in_step * channels;
          const int64_t x = columns.out_start + w * columns.out_step;
          T* to = target.data + ((image * target.size[0] + y) * target.size[1] + x) * channels;
          for_lanes<T>(channels, [&]<class V>(int64_t c) {
            V sum = load<V>(bias + c);
            const T* value = weights + c;
            for (const int64_t tap : taps) {
              sum = fma(load<V>(from + tap + c), load<V>(value), sum);
              value += channels;
            }
            store(to + c, sum);
          });
        }
      }
    }
  });
}

}  // namespace

template <class T>
void depthwise_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, const Tensor& y) {
  const ConvAxis rows = forward_axis(shape, 0);
  const ConvAxis columns = forward_axis(shape, 1);
  const Tensor add = padded_bias<T>(bias, 0, shape.channels);
  correlate<T>({x.data<T>(), shape.images, shape.in, shape.channels, 0, shape.channels},
               {y.data<T>(), shape.images, shape.out, shape.channels, 0, shape.channels}, rows,
               columns, tap_major<T>(weight, rows, columns), add.data<T>());
}

template <class T>
void depthwise_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                             const Tensor& bias, const Tensor& dx) {
  const Tensor add = padded_bias<T>(bias, 0, shape.channels);
  const std::vector<ConvAxis> columns = backward_axes(shape, 1);
  for (const ConvAxis& row_phase : backward_axes(shape, 0)) {
    for (const ConvAxis& column_phase : columns) {
      correlate<T>({g.data<T>(), shape.images, shape.out, shape.channels, 0, shape.channels},
                   {dx.data<T>(), shape.images, shape.in, shape.channels, 0, shape.channels},
                   row_phase, column_phase, tap_major<T>(weight, row_phase, column_phase),
                   add.data<T>());
    }
  }
}

template <class T>
void depthwise_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                                const Tensor& dw, const Tensor& db) {
  const ConvAxis rows = forward_axis(shape, 0);
  const ConvAxis columns = forward_axis(shape, 1);
  const int64_t channels = shape.channels;
  const int64_t all_rows = shape.images * rows.outputs;
  const int64_t slab = std::min(all_rows, slab_rows(rows, columns, channels, sizeof(T), kWindows));
  const int64_t elements =
      (rows.taps() * columns.taps() + 1) * channels;  // the last ones are the bias's
  const SumBlocks blocks((all_rows + slab - 1) / slab, elements);
  const Tensor partial = empty({blocks.count, elements}, {.dtype = dtype_of<T>});
  const ConvImages<const T> source{x.data<T>(), shape.images, shape.in, channels, 0, channels};
  parallel_for(0, blocks.count, 1, [&](int64_t begin, int64_t end) {
    SlabReader<T> reader(source, rows, columns, slab);
    for (int64_t block = begin; block < end; ++block) {
      T* sums = partial.data<T>() + block * elements;
      std::fill_n(sums, elements, T(0));
      for (int64_t s = blocks.begin(block); s < blocks.begin(block + 1); ++s) {
        const int64_t count = std::min(slab, all_rows - s * slab);
        const Slab<T> windows = reader.read(s * slab, count);
        const T* gradient = g.data<T>() + s * slab * columns.outputs * channels;
        T* to = sums;
        for (const int64_t tap : tap_offsets(rows, columns, windows.pitch, windows.pixel)) {
          for_lanes<T>(channels, [&]<class V>(int64_t c) {
            V sum = load<V>(to + c);
            for (int64_t r = 0; r < count; ++r) {
              const T* from = windows.data + windows.row[r] + tap + c;
              const T* value = gradient + r * columns.outputs * channels + c;
              for (int64_t w = 0; w < columns.outputs; ++w) {
                sum = fma(load<V>(from + w * columns.in_step * channels),
                          load<V>(value + w * channels), sum);
              }
            }
            store(to + c, sum);
          });
          to += channels;
        }
        add_columns(gradient, count * columns.outputs, channels, channels, to);
      }
    }
  });
  T* sums = partial.data<T>();
  for (int64_t b = 1; b < blocks.count; ++b) {
    for (int64_t i = 0; i < elements; ++i)
      sums[i] += sums[b * elements + i];
  }
  const Strides& strides = dw.strides();
  for (int64_t tap = 0; tap < rows.taps() * columns.taps(); ++tap) {
    T* to = dw.data<T>() + tap / columns.taps() * strides[2] + tap % columns.taps() * strides[3];
    for (int64_t c = 0; c < channels; ++c)
      to[c * strides[0]] = sums[tap * channels + c];
  }
  if (db.defined()) std::copy_n(sums + elements - channels, channels, db.data<T>());
}

#define WEFT_INSTANTIATE(T)                                                                   \
  template void depthwise_forward<T>(const ConvShape&, const Tensor&, const Tensor&,          \
                                     const Tensor&, const Tensor&);                           \
  template void depthwise_backward_data<T>(const ConvShape&, const Tensor&, const Tensor&,    \
                                           const Tensor&, const Tensor&);                     \
  template void depthwise_backward_weights<T>(const ConvShape&, const Tensor&, const Tensor&, \
                                              const Tensor&, const Tensor&);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::detail::conv
