#include "ops/detail/channel_sums.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/lane_bits.h"
#include "ops/detail/wide_lanes.h"

#include <vector>

namespace weft::detail {
namespace {

constexpr int64_t kSpans = 128;      // runs of blocks of a segment, about: each has sums of its own
constexpr int64_t kChannelRun = 64;  // channels whose spans one thread adds up
constexpr int64_t kThreadElements = 16384;

struct Blocks {
  explicit Blocks(const ChannelRows& shape)
      : rows(channel_block_rows(shape)),
        per_segment((shape.rows + rows - 1) / rows),
        span(std::clamp<int64_t>(per_segment / kSpans, 1, 16)),
        spans((per_segment + span - 1) / span) {}
  int64_t rows;         // of a whole block
  int64_t per_segment;  // blocks
  int64_t span;         // blocks of a whole span
  int64_t spans;        // of a segment
};

struct Sums {
  double* first;
  double* second;
};

ChannelPair empty_pair(const ChannelRows& shape) {
  const Shape size{shape.segments, shape.channels};
  return {empty(size, {.dtype = f64}), empty(size, {.dtype = f64})};
}

// Two sums for each segment and channel: sum_block(first row, rows, T* first, T* second) takes
// those of a block; fold(into, from, rows before, rows of from, channels begin, end) adds the sums
// `from`, in T or in double, to `into`.
template <class T, class SumBlock, class Fold>
ChannelPair sum_rows(const ChannelRows& shape, const SumBlock& sum_block, const Fold& fold) {
  const Blocks blocks(shape);
  const int64_t channels = shape.channels;
  const Tensor partial = empty({shape.segments * blocks.spans, 2, channels}, {.dtype = f64});
  const int64_t work = blocks.span * blocks.rows * channels;
  parallel_for(0, shape.segments * blocks.spans, std::max<int64_t>(1, kThreadElements / work),
               [&](int64_t begin, int64_t end) {
                 std::vector<T> sums(static_cast<size_t>(2 * channels));
                 for (int64_t s = begin; s < end; ++s) {
                   double* into = partial.data<double>() + s * 2 * channels;
                   std::fill_n(into, 2 * channels, 0.0);
                   const int64_t from = s % blocks.spans * blocks.span * blocks.rows;
                   const int64_t to = std::min(shape.rows, from + blocks.span * blocks.rows);
                   for (int64_t row = from; row < to; row += blocks.rows) {
                     const int64_t rows = std::min(blocks.rows, to - row);
                     std::fill(sums.begin(), sums.end(), T(0));
                     sum_block(s / blocks.spans, row, rows, sums.data(), sums.data() + channels);
                     fold(Sums{into, into + channels}, sums.data(), sums.data() + channels,
                          row - from, rows, int64_t{0}, channels);
                   }
                 }
               });
  const ChannelPair result = empty_pair(shape);
  const int64_t runs = (channels + kChannelRun - 1) / kChannelRun;
  parallel_for(0, shape.segments * runs, std::max<int64_t>(1, 256 / blocks.spans),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t segment = i / runs;
                   const int64_t from = i % runs * kChannelRun;
                   const int64_t to = std::min(channels, from + kChannelRun);
                   const Sums into{result.first.data<double>() + segment * channels,
                                   result.second.data<double>() + segment * channels};
                   std::fill(into.first + from, into.first + to, 0.0);
                   std::fill(into.second + from, into.second + to, 0.0);
                   const int64_t span_rows = blocks.span * blocks.rows;
                   for (int64_t s = 0; s < blocks.spans; ++s) {
                     const double* sums =
                         partial.data<double>() + (segment * blocks.spans + s) * 2 * channels;
                     fold(into, sums, sums + channels, s * span_rows,
                          std::min(span_rows, shape.rows - s * span_rows), from, to);
                   }
                 }
               });
  return result;
}

// Rows that share a visit of the sums, which live in memory. Long rows are read one after the other:
// memory delivers a single stream about twice as fast as four that lie close together.
constexpr int64_t kLongRow = 64;  // channels
constexpr int64_t kShared = 4;

// Calls one.operator()<V>(row, c) for every row, or four.operator()<V>(row, c) for four at a time.
template <class T, class One, class Four>
void visit_rows(int64_t rows, int64_t channels, const One& one, const Four& four) {
  int64_t row = 0;
  if (channels <= kLongRow) {
    for (; row + kShared <= rows; row += kShared)
      for_lanes<T>(channels, [&]<class V>(int64_t c) { four.template operator()<V>(row, c); });
  }
  for (; row < rows; ++row)
    for_lanes<T>(channels, [&]<class V>(int64_t c) { one.template operator()<V>(row, c); });
}

// sum[c] += f.operator()<V>(row, c) over rows.
template <class T, class F>
void add_rows(T* sum, int64_t rows, int64_t channels, const F& f) {
  visit_rows<T>(
      rows, channels,
      [&]<class V>(int64_t row, int64_t c) {
        store(sum + c, load<V>(sum + c) + f.template operator()<V>(row, c));
      },
      [&]<class V>(int64_t row, int64_t c) {
        const V left = f.template operator()<V>(row, c) + f.template operator()<V>(row + 1, c);
        const V right = f.template operator()<V>(row + 2, c) + f.template operator()<V>(row + 3, c);
        store(sum + c, load<V>(sum + c) + (left + right));
      });
}

template <class S>
ChannelPair moments(const Tensor& x, const ChannelRows& shape) {
  using T = Compute<S>;
  const int64_t channels = shape.channels;
  const auto sum_block = [&, data = x.data<S>()](int64_t segment, int64_t row, int64_t rows,
                                                 T* mean, T* deviations) {
    const S* in = data + (segment * shape.rows + row) * channels;
    add_rows(mean, rows, channels,
             [=]<class V>(int64_t r, int64_t c) { return load_wide<V>(in + r * channels + c); });
    for (int64_t c = 0; c < channels; ++c)
      mean[c] /= static_cast<T>(rows);
    add_rows(deviations, rows, channels, [=]<class V>(int64_t r, int64_t c) {
      __builtin_prefetch(in + (r + rows) * channels + c, 0, 2);
      const V deviation = load_wide<V>(in + r * channels + c) - load<V>(mean + c);
      return deviation * deviation;
    });
  };
  const auto fold = [](Sums into, const auto* mean, const auto* deviations, int64_t before,
                       int64_t rows, int64_t begin, int64_t end) {
    const auto count = static_cast<double>(rows);
    const double share = count / static_cast<double>(before + rows);
    const double weight = static_cast<double>(before) * share;
    for (int64_t c = begin; c < end; ++c) {
      const double apart = double{mean[c]} - into.first[c];
      into.first[c] += apart * share;
      into.second[c] += double{deviations[c]} + apart * apart * weight;
    }
  };
  return sum_rows<T>(shape, sum_block, fold);
}

template <class S, bool Gated>
ChannelPair gradient_sums(const Tensor& g, const Tensor& dead, const Tensor& x, const Tensor& mean,
                          const ChannelRows& shape) {
  using T = Compute<S>;
  const int64_t channels = shape.channels;
  const int64_t pitch = Gated ? bit_pitch<T>(channels) : 0;
  const uint8_t* all_bits = Gated ? dead.data<uint8_t>() : nullptr;
  const auto sum_block = [&, all_g = g.data<S>(), all_x = x.data<S>(), means = mean.data<T>()](
                             int64_t segment, int64_t row, int64_t rows, T* first, T* second) {
    const int64_t at = segment * shape.rows + row;
    const S* gradient = all_g + at * channels;
    const S* in = all_x + at * channels;
    const uint8_t* bits = all_bits + at * pitch;
    const T* m = means + segment * channels;
    const auto h_of = [=]<class V>(int64_t r, int64_t c) {
      const V h = load_wide<V>(gradient + r * channels + c);
      if constexpr (!Gated) return h;
      return functors::where(load_bits<V>(bits + r * pitch, c), V{}, h);
    };
    const auto apart = [=]<class V>(int64_t r, int64_t c) {
      return load_wide<V>(in + r * channels + c) - load<V>(m + c);
    };
    visit_rows<T>(
        rows, channels,
        [=]<class V>(int64_t r, int64_t c) {
          const V h = h_of.template operator()<V>(r, c);
          store(first + c, load<V>(first + c) + h);
          store(second + c, fma(h, apart.template operator()<V>(r, c), load<V>(second + c)));
        },
        [=]<class V>(int64_t r, int64_t c) {
          V h[kShared];
          V product[kShared];
          for (int64_t i = 0; i < kShared; ++i) {
            h[i] = h_of.template operator()<V>(r + i, c);
            product[i] = h[i] * apart.template operator()<V>(r + i, c);
          }
          store(first + c, load<V>(first + c) + ((h[0] + h[1]) + (h[2] + h[3])));
          store(second + c, load<V>(second + c) +
                                ((product[0] + product[1]) + (product[2] + product[3])));
        });
  };
  const auto fold = [](Sums into, const auto* first, const auto* second, int64_t, int64_t,
                       int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      into.first[c] += double{first[c]};
      into.second[c] += double{second[c]};
    }
  };
  return sum_rows<T>(shape, sum_block, fold);
}

}  // namespace

ChannelPair channel_moments(const Tensor& x, const ChannelRows& shape) {
  profile_work(4 * x.numel(), x.bytes());
  return dispatch_elements(x.dtype(), [&]<class S>() { return moments<S>(x, shape); });
}

ChannelPair channel_gradient_sums(const Tensor& g, const Tensor& dead, const Tensor& x,
                                  const Tensor& mean, const ChannelRows& shape) {
  profile_work(4 * x.numel(), 2 * x.bytes() + (dead.defined() ? dead.bytes() : 0));
  return dispatch_elements(x.dtype(), [&]<class S>() {
    return dead.defined() ? gradient_sums<S, true>(g, dead, x, mean, shape)
                          : gradient_sums<S, false>(g, dead, x, mean, shape);
  });
}

}  // namespace weft::detail
