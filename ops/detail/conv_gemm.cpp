// Convolution as matrix products, one a tap of the window: pixels by channels times channels by
// outputs. Where the tap's pixels are not simply all of x, they are gathered into a matrix first.
#include "core/parallel.h"
#include "ops/detail/conv_tile.h"
#include "ops/detail/conv_ways.h"
#include "ops/detail/copies.h"
#include "ops/detail/gemm.h"
#include "ops/detail/images.h"
#include "ops/detail/wide_lanes.h"
#include "ops/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace weft::detail::conv {
namespace {

constexpr int64_t kWholeSum = 4096;  // pixels whose gradient is one product that threads share
constexpr int64_t kChunk = 512;      // pixels of a product where threads have products of their own

int64_t pixels_of(const ConvShape& shape) {
  return shape.images * shape.out[0] * shape.out[1];
}

// One tap of the window: y's pixel (row, column) sees x's at (row, column) * stride + offset.
struct Tap {
  int64_t row;  // of the window
  int64_t column;
  std::array<int64_t, 2> offset;
};

std::vector<Tap> taps_of(const ConvShape& shape) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < shape.kernel[0]; ++i) {
    for (int64_t j = 0; j < shape.kernel[1]; ++j) {
      taps.push_back(
          {i,
           j,
           {i * shape.dilation[0] - shape.padding[0], j * shape.dilation[1] - shape.padding[1]}});
    }
  }
  return taps;
}

// Whether a tap sees every pixel of x, in their order.
bool sees_all(const ConvShape& shape, const Tap& tap) {
  for (size_t axis = 0; axis < 2; ++axis) {
    const bool steps = shape.stride[axis] == 1 || shape.out[axis] == 1;
    if (!steps || shape.in[axis] != shape.out[axis] || tap.offset[axis] != 0) return false;
  }
  return true;
}

// Calls visit(pixel of x, or -1 for one of the padding, pixel of y) for y's pixels in [begin, end),
// counted over all images.
template <class F>
void each_pixel(const ConvShape& shape, const Tap& tap, int64_t begin, int64_t end,
                const F& visit) {
  for (int64_t p = begin; p < end; ++p) {
    const int64_t x = p % shape.out[1] * shape.stride[1] + tap.offset[1];
    const int64_t y = p / shape.out[1] % shape.out[0] * shape.stride[0] + tap.offset[0];
    const int64_t image = p / (shape.out[0] * shape.out[1]);
    const bool inside = x >= 0 && x < shape.in[1] && y >= 0 && y < shape.in[0];
    visit(inside ? (image * shape.in[0] + y) * shape.in[1] + x : -1, p);
  }
}

// The pixels that a tap sees, one after the other in `seen`, or x itself. Returns where they are.
template <class T>
const T* seen_pixels(const ConvShape& shape, const Tap& tap, const Tensor& x, const Tensor& seen) {
  const T* from = x.data<T>();
  if (sees_all(shape, tap)) return from;
  const int64_t channels = shape.channels;
  T* to = seen.data<T>();
  parallel_for(0, pixels_of(shape), row_grain(channels), [&](int64_t begin, int64_t end) {
    each_pixel(shape, tap, begin, end, [&](int64_t in, int64_t out) {
      if (in < 0) {
        std::fill_n(to + out * channels, channels, T(0));
      } else {
        std::memcpy(to + out * channels, from + in * channels,
                    static_cast<size_t>(channels) * sizeof(T));
      }
    });
  });
  return to;
}

// The way back for a gradient: adds each pixel to the one of dx that it saw. A row of images
// belongs to one thread.
template <class T>
void add_pixels(const ConvShape& shape, const Tap& tap, const T* seen, T* dx) {
  const int64_t channels = shape.channels;
  const int64_t line = shape.out[1];
  parallel_for(0, shape.images * shape.out[0], row_grain(line * channels),
               [&](int64_t begin, int64_t end) {
                 each_pixel(shape, tap, begin * line, end * line, [&](int64_t in, int64_t out) {
                   if (in < 0) return;
                   for_lanes<T>(channels, [&]<class V>(int64_t c) {
                     T* to = dx + in * channels + c;
                     store(to, load<V>(to) + load<V>(seen + out * channels + c));
                   });
                 });
               });
}

// Memory for the pixels of a tap, if any tap needs it.
template <class T>
Tensor pixel_buffer(const ConvShape& shape, const std::vector<Tap>& taps) {
  for (const Tap& tap : taps) {
    if (!sees_all(shape, tap))
      return empty({pixels_of(shape), shape.channels}, {.dtype = dtype_of<T>});
  }
  return {};
}

template <class T>
const T* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// The sum of g's rows: blocks of them in order, then the blocks.
template <class T>
void sum_rows(const Tensor& g, int64_t rows, int64_t columns, const Tensor& db) {
  const int64_t blocks = (rows + kChunk - 1) / kChunk;
  const Tensor partial = empty({blocks, columns}, {.dtype = dtype_of<T>});
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      T* sums = partial.data<T>() + b * columns;
      std::fill_n(sums, columns, T(0));
      add_columns(g.data<T>() + b * kChunk * columns, std::min(kChunk, rows - b * kChunk), columns,
                  columns, sums);
    }
  });
  std::fill_n(db.data<T>(), columns, T(0));
  add_columns(static_cast<const T*>(partial.data<T>()), blocks, columns, columns, db.data<T>());
}

}  // namespace

template <class T>
void gemm_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& y) {
  ++copy_counts().weights;
  const std::vector<Tap> taps = taps_of(shape);
  const Tensor buffer = pixel_buffer<T>(shape, taps);
  const Strides& s = weight.strides();
  for (size_t i = 0; i < taps.size(); ++i) {
    const Tap& tap = taps[i];
    gemm(Gemm<T>{.m = pixels_of(shape),
                 .n = shape.outputs,
                 .k = shape.channels,
                 .a = seen_pixels<T>(shape, tap, x, buffer),
                 .a_row = shape.channels,
                 .a_col = 1,
                 .b = weight.data<T>() + tap.row * s[2] + tap.column * s[3],
                 .b_row = s[1],
                 .b_col = s[0],
                 .c = y.data<T>(),
                 .c_row = shape.outputs,
                 .c_col = 1,
                 .bias = i + 1 == taps.size() ? data_of<T>(bias) : nullptr,
                 .accumulate = i > 0});
  }
}

template <class T>
void gemm_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                        const Tensor& bias, const Tensor& dx) {
  ++copy_counts().weights;
  const std::vector<Tap> taps = taps_of(shape);
  const bool whole = taps.size() == 1 && sees_all(shape, taps[0]);
  const Tensor buffer = whole ? dx : pixel_buffer<T>(shape, taps);
  const int64_t channels = shape.channels;
  if (!whole) {
    const int64_t pixels = dx.numel() / channels;
    parallel_for(0, pixels, row_grain(channels), [&](int64_t begin, int64_t end) {
      T* to = dx.data<T>() + begin * channels;
      for (int64_t p = begin; p < end; ++p, to += channels) {
        if (bias.defined()) {
          std::copy_n(bias.data<T>(), channels, to);
        } else {
          std::fill_n(to, channels, T(0));
        }
      }
    });
  }
  const Strides& s = weight.strides();
  for (const Tap& tap : taps) {
    gemm(Gemm<T>{.m = pixels_of(shape),
                 .n = channels,
                 .k = shape.outputs,
                 .a = g.data<T>(),
                 .a_row = shape.outputs,
                 .a_col = 1,
                 .b = weight.data<T>() + tap.row * s[2] + tap.column * s[3],
                 .b_row = s[0],
                 .b_col = s[1],
                 .c = buffer.data<T>(),
                 .c_row = channels,
                 .c_col = 1,
                 .bias = whole ? data_of<T>(bias) : nullptr});
    if (!whole) add_pixels<T>(shape, tap, buffer.data<T>(), dx.data<T>());
  }
}

namespace {

// to[outputs, channels], in its strides, = gᵀ · seen.
template <class T>
void multiply_pixels(const T* g, const T* seen, int64_t pixels, int64_t outputs, int64_t channels,
                     T* to, int64_t row, int64_t column) {
  // The products of pixels [begin, end), in c.
  const auto product = [&](int64_t begin, int64_t end, T* c, int64_t c_row, int64_t c_col,
                           bool accumulate) {
    gemm(Gemm<T>{.m = outputs,
                 .n = channels,
                 .k = end - begin,
                 .a = g + begin * outputs,
                 .a_row = 1,
                 .a_col = outputs,
                 .b = seen + begin * channels,
                 .b_row = channels,
                 .b_col = 1,
                 .c = c,
                 .c_row = c_row,
                 .c_col = c_col,
                 .accumulate = accumulate});
  };
  if (pixels <= kWholeSum) return product(0, pixels, to, row, column, false);

  const int64_t elements = outputs * channels;
  const SumBlocks blocks((pixels + kChunk - 1) / kChunk, elements);
  const Tensor partial = empty({blocks.count, outputs, channels}, {.dtype = dtype_of<T>});
  parallel_for(0, blocks.count, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      for (int64_t chunk = blocks.begin(b); chunk < blocks.begin(b + 1); ++chunk) {
        product(chunk * kChunk, std::min(pixels, (chunk + 1) * kChunk),
                partial.data<T>() + b * elements, channels, 1, chunk > blocks.begin(b));
      }
    }
  });
  parallel_for(0, outputs, row_grain(channels * blocks.count), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      T* sums = partial.data<T>() + o * channels;
      for (int64_t b = 1; b < blocks.count; ++b) {
        for (int64_t c = 0; c < channels; ++c)
          sums[c] += sums[b * elements + c];
      }
      for (int64_t c = 0; c < channels; ++c)
        to[o * row + c * column] = sums[c];
    }
  });
}

}  // namespace

template <class T>
void gemm_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                           const Tensor& dw, const Tensor& db) {
  const std::vector<Tap> taps = taps_of(shape);
  const Tensor buffer = pixel_buffer<T>(shape, taps);
  const Strides& s = dw.strides();
  for (const Tap& tap : taps) {
    multiply_pixels<T>(g.data<T>(), seen_pixels<T>(shape, tap, x, buffer), pixels_of(shape),
                       shape.outputs, shape.channels,
                       dw.data<T>() + tap.row * s[2] + tap.column * s[3], s[0], s[1]);
  }
  if (db.defined()) sum_rows<T>(g, pixels_of(shape), shape.outputs, db);
}

void narrow_product_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                            const Tensor& dw, const Tensor& db) {
  const int64_t pixels = pixels_of(shape);
  const std::vector<Tap> taps = taps_of(shape);
  Tensor seen = x;
  if (!sees_all(shape, taps[0])) {
    seen = empty({pixels, shape.channels}, x.options());
    dispatch_elements(x.dtype(), [&]<class S>() { seen_pixels<S>(shape, taps[0], x, seen); });
  }
  const NoGrad no_grad;
  const Tensor rows = alias(g, {pixels, shape.outputs}, {shape.outputs, 1});
  const Tensor turned = alias(g, {shape.outputs, pixels}, {1, shape.outputs});
  const Tensor product = empty({shape.outputs, shape.channels}, dw.options());
  multiply("conv", product, turned, alias(seen, {pixels, shape.channels}, {shape.channels, 1}));
  copy_(alias(dw, {shape.outputs, shape.channels}, {dw.strides()[0], dw.strides()[1]}), product);
  if (db.defined()) copy_(db, sum(rows, {0}));
}

#define WEFT_INSTANTIATE(T)                                                                    \
  template void gemm_forward<T>(const ConvShape&, const Tensor&, const Tensor&, const Tensor&, \
                                const Tensor&);                                                \
  template void gemm_backward_data<T>(const ConvShape&, const Tensor&, const Tensor&,          \
                                      const Tensor&, const Tensor&);                           \
  template void gemm_backward_weights<T>(const ConvShape&, const Tensor&, const Tensor&,       \
                                         const Tensor&, const Tensor&);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::detail::conv
