#include "ops/detail/channel_sums.h"

#include "core/parallel.h"
#include "ops/detail/blocks.h"
#include "ops/detail/lanes.h"

#include <algorithm>

namespace weft::detail {
namespace {

constexpr int64_t kBlockElements =
    8192;                            // 32 KiB of f32: a second pass over a block finds it in cache
constexpr int64_t kChannelRun = 64;  // channels whose blocks one thread adds up

struct Blocks {
  explicit Blocks(const ChannelRows& shape)
      : rows(std::clamp<int64_t>(kBlockElements / shape.channels, 16, 1024)),
        per_segment((shape.rows + rows - 1) / rows) {}
  int64_t rows;  // of a whole block
  int64_t per_segment;
};

struct Block {
  int64_t number = 0;
  int64_t segment = 0;
  int64_t first_row = 0;  // over all segments
  int64_t rows = 0;
};

// Calls visit(block) for all blocks of [begin, end).
template <class F>
void each_block(const ChannelRows& shape, const Blocks& blocks, int64_t begin, int64_t end,
                F visit) {
  for (int64_t b = begin; b < end; ++b) {
    const int64_t row = b % blocks.per_segment * blocks.rows;
    const int64_t segment = b / blocks.per_segment;
    visit(Block{b, segment, segment * shape.rows + row, std::min(blocks.rows, shape.rows - row)});
  }
}

// acc[c] += sum over rows of f.operator()<V>(c, address offset of the row's element c). Four rows
// share one visit of acc, which lives in memory.
template <class T, class F>
void add_rows(T* acc, int64_t rows, int64_t channels, const F& f) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    for_lanes<T>(channels, [&]<class V>(int64_t c) {
      const int64_t at = row * channels + c;
      const V left = f.template operator()<V>(c, at) + f.template operator()<V>(c, at + channels);
      const V right = f.template operator()<V>(c, at + 2 * channels) +
                      f.template operator()<V>(c, at + 3 * channels);
      store(acc + c, load<V>(acc + c) + (left + right));
    });
  }
  for (; row < rows; ++row) {
    for_lanes<T>(channels, [&]<class V>(int64_t c) {
      store(acc + c, load<V>(acc + c) + f.template operator()<V>(c, row * channels + c));
    });
  }
}

// Two T[channels] sums of every block: `fill(block, first, second)` sets them from zeros;
// `combine(segment, channels begin, end, partial sums)` adds them up.
template <class T, class Fill, class Combine>
void sum_blocks(const ChannelRows& shape, const Fill& fill, const Combine& combine) {
  const Blocks blocks(shape);
  const int64_t channels = shape.channels;
  const int64_t count = shape.segments * blocks.per_segment;
  const Tensor partial = empty({count, 2, channels}, {.dtype = dtype_of<T>});
  const int64_t grain = std::max<int64_t>(1, 2 * kBlockElements / (blocks.rows * channels));
  parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    fill(blocks, begin, end, [&](const Block& block) {
      T* sums = partial.data<T>() + block.number * 2 * channels;
      std::fill_n(sums, 2 * channels, T(0));
      return sums;
    });
  });
  const int64_t runs = (channels + kChannelRun - 1) / kChannelRun;
  parallel_for(0, shape.segments * runs, std::max<int64_t>(1, 256 / blocks.per_segment),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t segment = i / runs;
                   const int64_t from = i % runs * kChannelRun;
                   combine(blocks, segment, from, std::min(channels, from + kChannelRun),
                           partial.data<T>() + segment * blocks.per_segment * 2 * channels);
                 }
               });
}

int64_t block_rows(const ChannelRows& shape, const Blocks& blocks, int64_t block) {
  return std::min(blocks.rows, shape.rows - block * blocks.rows);
}

ChannelPair empty_pair(const ChannelRows& shape) {
  const Shape size{shape.segments, shape.channels};
  return {empty(size, {.dtype = f64}), empty(size, {.dtype = f64})};
}

// Runs kernel(address in each of `in`, address in out, segment offset, rows) over all blocks.
template <class T, size_t N, class F>
void map_blocks(const Tensor& out, const std::array<const Tensor*, N>& in, const ChannelRows& shape,
                const F& kernel) {
  const Blocks blocks(shape);
  const int64_t most = blocks.rows * shape.channels;
  const int64_t grain = std::max<int64_t>(1, 2 * kBlockElements / most);
  parallel_for(0, shape.segments * blocks.per_segment, grain, [&](int64_t begin, int64_t end) {
    const BlockWriter<T> writer(out, most);
    std::vector<BlockReader<T>> readers;
    for (const Tensor* tensor : in)
      readers.emplace_back(*tensor, most);
    each_block(shape, blocks, begin, end, [&](const Block& block) {
      const int64_t first = block.first_row * shape.channels;
      const int64_t count = block.rows * shape.channels;
      std::array<const T*, N> from;
      for (size_t i = 0; i < N; ++i)
        from[i] = readers[i].read(first, count);
      T* to = writer.at(first);
      const int64_t segment = block.segment * shape.channels;
      for (int64_t row = 0; row < count; row += shape.channels) {
        for_lanes<T>(shape.channels, [&]<class V>(int64_t c) {
          store(to + row + c, kernel.template operator()<V>(from, row + c, segment + c));
        });
      }
      writer.finish(first, count);
    });
  });
}

}  // namespace

template <class T>
ChannelPair channel_moments(const Tensor& x, const ChannelRows& shape) {
  const ChannelPair result = empty_pair(shape);
  const int64_t channels = shape.channels;
  const auto fill = [&](const Blocks& blocks, int64_t begin, int64_t end, const auto& sums_of) {
    const BlockReader<T> reader(x, blocks.rows * channels);
    each_block(shape, blocks, begin, end, [&](const Block& block) {
      T* mean = sums_of(block);
      T* deviations = mean + channels;
      const T* in = reader.read(block.first_row * channels, block.rows * channels);
      add_rows(mean, block.rows, channels,
               [&]<class V>(int64_t, int64_t at) { return load<V>(in + at); });
      const auto rows = static_cast<T>(block.rows);
      for (int64_t c = 0; c < channels; ++c)
        mean[c] /= rows;
      add_rows(deviations, block.rows, channels, [&]<class V>(int64_t c, int64_t at) {
        const V deviation = load<V>(in + at) - load<V>(mean + c);
        return deviation * deviation;
      });
    });
  };
  const auto combine = [&](const Blocks& blocks, int64_t segment, int64_t from, int64_t to,
                           const T* partial) {
    double* mean = result.first.data<double>() + segment * channels;
    double* deviations = result.second.data<double>() + segment * channels;
    std::fill(mean + from, mean + to, 0.0);
    std::fill(deviations + from, deviations + to, 0.0);
    const auto each = [&](auto visit) {
      for (int64_t b = 0; b < blocks.per_segment; ++b) {
        const T* sums = partial + b * 2 * channels;
        const auto rows = static_cast<double>(block_rows(shape, blocks, b));
        for (int64_t c = from; c < to; ++c)
          visit(c, rows, double{sums[c]}, double{sums[channels + c]});
      }
    };
    each([&](int64_t c, double rows, double block_mean, double) { mean[c] += rows * block_mean; });
    for (int64_t c = from; c < to; ++c)
      mean[c] /= static_cast<double>(shape.rows);
    each([&](int64_t c, double rows, double block_mean, double block_deviations) {
      const double apart = block_mean - mean[c];
      deviations[c] += block_deviations + rows * apart * apart;
    });
  };
  sum_blocks<T>(shape, fill, combine);
  return result;
}

template <class T>
ChannelPair channel_gradient_sums(const Tensor& g, const Tensor& x, const Tensor& mean,
                                  const ChannelRows& shape) {
  const ChannelPair result = empty_pair(shape);
  const int64_t channels = shape.channels;
  const auto fill = [&](const Blocks& blocks, int64_t begin, int64_t end, const auto& sums_of) {
    const BlockReader<T> g_reader(g, blocks.rows * channels);
    const BlockReader<T> x_reader(x, blocks.rows * channels);
    each_block(shape, blocks, begin, end, [&](const Block& block) {
      T* sums = sums_of(block);
      const T* gradient = g_reader.read(block.first_row * channels, block.rows * channels);
      const T* in = x_reader.read(block.first_row * channels, block.rows * channels);
      const T* means = mean.data<T>() + block.segment * channels;
      add_rows(sums, block.rows, channels,
               [&]<class V>(int64_t, int64_t at) { return load<V>(gradient + at); });
      add_rows(sums + channels, block.rows, channels, [&]<class V>(int64_t c, int64_t at) {
        return load<V>(gradient + at) * (load<V>(in + at) - load<V>(means + c));
      });
    });
  };
  const auto combine = [&](const Blocks& blocks, int64_t segment, int64_t from, int64_t to,
                           const T* partial) {
    double* first = result.first.data<double>() + segment * channels;
    double* second = result.second.data<double>() + segment * channels;
    std::fill(first + from, first + to, 0.0);
    std::fill(second + from, second + to, 0.0);
    for (int64_t b = 0; b < blocks.per_segment; ++b) {
      const T* sums = partial + b * 2 * channels;
      for (int64_t c = from; c < to; ++c) {
        first[c] += double{sums[c]};
        second[c] += double{sums[channels + c]};
      }
    }
  };
  sum_blocks<T>(shape, fill, combine);
  return result;
}

template <class T>
void channel_affine(const Tensor& out, const Tensor& x, const Tensor& mean, const Tensor& scale,
                    const Tensor& shift, const ChannelRows& shape) {
  const T* means = mean.data<T>();
  const T* scales = scale.data<T>();
  const T* shifts = shift.data<T>();
  map_blocks<T, 1>(out, {&x}, shape,
                   [=]<class V>(const std::array<const T*, 1>& in, int64_t at, int64_t c) {
                     return fma(load<V>(in[0] + at) - load<V>(means + c), load<V>(scales + c),
                                load<V>(shifts + c));
                   });
}

template <class T>
void channel_blend(const Tensor& out, const Tensor& g, const Tensor& x, const Tensor& mean,
                   const Tensor& scale, const Tensor& slope, const Tensor& shift,
                   const ChannelRows& shape) {
  const T* means = mean.data<T>();
  const T* scales = scale.data<T>();
  const T* slopes = slope.data<T>();
  const T* shifts = shift.data<T>();
  map_blocks<T, 2>(
      out, {&g, &x}, shape, [=]<class V>(const std::array<const T*, 2>& in, int64_t at, int64_t c) {
        const V rest =
            fma(load<V>(in[1] + at) - load<V>(means + c), load<V>(slopes + c), load<V>(shifts + c));
        return fma(load<V>(in[0] + at), load<V>(scales + c), rest);
      });
}

#define WEFT_INSTANTIATE(T)                                                                   \
  template ChannelPair channel_moments<T>(const Tensor&, const ChannelRows&);                 \
  template ChannelPair channel_gradient_sums<T>(const Tensor&, const Tensor&, const Tensor&,  \
                                                const ChannelRows&);                          \
  template void channel_affine<T>(const Tensor&, const Tensor&, const Tensor&, const Tensor&, \
                                  const Tensor&, const ChannelRows&);                         \
  template void channel_blend<T>(const Tensor&, const Tensor&, const Tensor&, const Tensor&,  \
                                 const Tensor&, const Tensor&, const Tensor&, const ChannelRows&);
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
#undef WEFT_INSTANTIATE

}  // namespace weft::detail
