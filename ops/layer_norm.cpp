// Layer and RMS normalisation: rows of one run each, whose sums are taken in an order that depends
// on their length alone. The weight's and bias's gradients are summed over fixed blocks of rows.
#include "autograd/record.h"
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/blocks.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/images.h"
#include "ops/detail/lanes.h"
#include "ops/detail/norm_parameters.h"
#include "ops/norm.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using detail::broadcast;
using detail::fma;
using detail::for_lanes;
using detail::kLanes;
using detail::load;
using detail::Packet;
using detail::store;

constexpr int64_t kMostBlocks = 64;  // of rows, each with partial sums of the weight's gradient
constexpr int64_t kLeastRows = 16;

// The sum of f.operator()<V>(i) over [0, count): four chains of packets, folded in a fixed tree,
// then the rest.
template <class T, class F>
T row_sum(int64_t count, const F& f) {
  using V = Packet<T>;
  constexpr int64_t lanes = kLanes<T>;
  V sums[4] = {V{}, V{}, V{}, V{}};
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (int64_t k = 0; k < 4; ++k)
      sums[k] += f.template operator()<V>(i + k * lanes);
  }
  for (; i + lanes <= count; i += lanes)
    sums[0] += f.template operator()<V>(i);
  V sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int64_t half = lanes / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k)
      sum[k] += sum[k + half];
  }
  T total = sum[0];
  for (; i < count; ++i)
    total += f.template operator()<T>(i);
  return total;
}

// Which of the two normalisations, and of what.
struct RowNorm {
  const char* op;
  Shape normalized;
  bool centred;
  double eps;
  int64_t rows = 0;
  int64_t length = 0;

  int64_t block() const { return std::max(kLeastRows, (rows + kMostBlocks - 1) / kMostBlocks); }
};

// x as a row-major matrix [rows, length].
Tensor row_major(const Tensor& x) {
  const NoGrad no_grad;
  return contiguous(x);
}

// The parameter as T[length], row-major; undefined stays so.
template <class T>
Tensor row_of(const Tensor& parameter) {
  if (!parameter.defined()) return {};
  const NoGrad no_grad;
  return to(contiguous(parameter), dtype_of<T>);
}

template <class T>
const T* data_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// statistics: T[2, rows], mean then 1 / deviation.
template <class T>
void row_forward(const RowNorm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const Tensor& out, const Tensor& statistics) {
  const int64_t length = norm.length;
  const auto count = static_cast<T>(length);
  const T* w = data_of<T>(weight);
  const T* b = data_of<T>(bias);
  parallel_for(0, norm.rows, detail::row_grain(length), [&](int64_t begin, int64_t end) {
    const detail::BlockReader<T> reader(x, length);
    const detail::BlockWriter<T> writer(out, length);
    for (int64_t r = begin; r < end; ++r) {
      const T* in = reader.read(r * length, length);
      T mean = 0;
      if (norm.centred)
        mean = row_sum<T>(length, [&]<class V>(int64_t i) { return load<V>(in + i); }) / count;
      const T variance = row_sum<T>(length,
                                    [&]<class V>(int64_t i) {
                                      const V apart = load<V>(in + i) - broadcast<V>(mean);
                                      return apart * apart;
                                    }) /
                         count;
      const auto rstd = static_cast<T>(1 / std::sqrt(double{variance} + norm.eps));
      statistics.data<T>()[r] = mean;
      statistics.data<T>()[norm.rows + r] = rstd;
      T* to = writer.at(r * length);
      for_lanes<T>(length, [&]<class V>(int64_t i) {
        V y = (load<V>(in + i) - broadcast<V>(mean)) * broadcast<V>(rstd);
        if (w) y = y * load<V>(w + i);
        if (b) y = y + load<V>(b + i);
        store(to + i, y);
      });
      writer.finish(r * length, length);
    }
  });
}

// dx may be undefined. partial: T[blocks, 2, length], the sums of g * xhat and of g over each block
// of rows; or undefined.
template <class T>
void row_backward(const RowNorm& norm, const Tensor& g, const Tensor& x, const Tensor& weight,
                  const Tensor& statistics, const Tensor& dx, const Tensor& partial) {
  const int64_t length = norm.length;
  const auto count = static_cast<T>(length);
  const int64_t block = norm.block();
  const T* w = data_of<T>(weight);
  parallel_for(0, (norm.rows + block - 1) / block, 1, [&](int64_t begin, int64_t end) {
    const detail::BlockReader<T> g_reader(g, length);
    const detail::BlockReader<T> x_reader(x, length);
    const detail::BlockWriter<T> writer(dx.defined() ? dx : g, length);
    for (int64_t r = begin * block; r < std::min(norm.rows, end * block); ++r) {
      const T* gradient = g_reader.read(r * length, length);
      const T* in = x_reader.read(r * length, length);
      const T mean = statistics.data<T>()[r];
      const T rstd = statistics.data<T>()[norm.rows + r];
      const auto weighted = [&]<class V>(int64_t i) {
        return w ? load<V>(gradient + i) * load<V>(w + i) : load<V>(gradient + i);
      };
      const auto normal = [&]<class V>(int64_t i) {
        return (load<V>(in + i) - broadcast<V>(mean)) * broadcast<V>(rstd);
      };
      if (partial.defined()) {
        T* sums = partial.data<T>() + r / block * 2 * length;
        if (r % block == 0) std::fill_n(sums, 2 * length, T(0));
        for_lanes<T>(length, [&]<class V>(int64_t i) {
          const V value = load<V>(gradient + i);
          store(sums + i, fma(value, normal.template operator()<V>(i), load<V>(sums + i)));
          store(sums + length + i, load<V>(sums + length + i) + value);
        });
      }
      if (!dx.defined()) continue;
      const T sum_gx =
          row_sum<T>(length,
                     [&]<class V>(int64_t i) {
                       return weighted.template operator()<V>(i) * normal.template operator()<V>(i);
                     }) /
          count;
      T sum_g = 0;
      if (norm.centred) sum_g = row_sum<T>(length, weighted) / count;
      T* to = writer.at(r * length);
      for_lanes<T>(length, [&]<class V>(int64_t i) {
        const V rest = weighted.template operator()<V>(i) - broadcast<V>(sum_g);
        store(to + i, (rest - normal.template operator()<V>(i) * broadcast<V>(sum_gx)) *
                          broadcast<V>(rstd));
      });
      writer.finish(r * length, length);
    }
  });
}

// Sum `which` (0 or 1) of the blocks' partial sums, added in their order.
template <class T>
std::vector<double> add_partial(const Tensor& partial, int64_t which, int64_t length) {
  std::vector<double> sum(static_cast<size_t>(length));
  for (int64_t b = 0; b < partial.size(0); ++b) {
    const T* values = partial.data<T>() + (2 * b + which) * length;
    for (int64_t i = 0; i < length; ++i)
      sum[static_cast<size_t>(i)] += double{values[i]};
  }
  return sum;
}

template <class T>
Tensor row_norm_of(const RowNorm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor out = empty(x.shape(), x.options());
  const Tensor statistics = empty({2, norm.rows}, {.dtype = dtype_of<T>});
  row_forward<T>(norm, row_major(x), row_of<T>(weight), row_of<T>(bias), out, statistics);
  if (!recording(x, weight, bias)) return out;
  record(norm.op, out, inputs(x, weight, bias),
         [norm, statistics, x = Saved(x), weight = Saved(weight), bias = Saved(bias)](
             const Tensor& g, Gradients& to) {
           const Tensor& in = x.get(norm.op);
           const Tensor dx = to.wants(0) ? empty(in.shape(), in.options()) : Tensor();
           Tensor partial;
           if (to.wants(1) || to.wants(2)) {
             const int64_t blocks = (norm.rows + norm.block() - 1) / norm.block();
             partial = empty({blocks, 2, norm.length}, {.dtype = dtype_of<T>});
           }
           row_backward<T>(norm, row_major(g), row_major(in), row_of<T>(weight.get(norm.op)),
                           statistics, dx, partial);
           if (to.wants(0)) to.set(0, dx);
           const auto sum = [&](size_t input, int64_t which, const Saved& parameter) {
             if (!to.wants(input)) return;
             const std::vector<double> values = add_partial<T>(partial, which, norm.length);
             to.set(input, detail::parameter_gradient(values, parameter.get(norm.op)));
           };
           sum(1, 0, weight);
           sum(2, 1, bias);
         });
  return out;
}

Tensor row_norm(RowNorm norm, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  detail::check_norm(norm.op, x, norm.eps);
  const int kept = x.dims() - norm.normalized.dims();
  bool fits = norm.normalized.dims() >= 1 && kept >= 0;
  for (int i = 0; fits && i < norm.normalized.dims(); ++i)
    fits = norm.normalized[i] == x.shape()[kept + i];
  WEFT_CHECK(fits && norm.normalized.numel() > 0, norm.op,
             "expected an input whose last dims are the normalized shape ", norm.normalized,
             ", got shape ", x.shape());
  detail::check_norm_parameter(norm.op, "a weight", weight, norm.normalized, x);
  detail::check_norm_parameter(norm.op, "a bias", bias, norm.normalized, x);
  norm.length = norm.normalized.numel();
  norm.rows = x.numel() / norm.length;
  if (x.dtype() == f64) return row_norm_of<double>(norm, x, weight, bias);
  return row_norm_of<float>(norm, x, weight, bias);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& weight,
                  const Tensor& bias, double eps) {
  const ProfileOp profile("layer_norm");
  return row_norm({.op = "layer_norm", .normalized = normalized, .centred = true, .eps = eps}, x,
                  weight, bias);
}

Tensor rms_norm(const Tensor& x, const Shape& normalized, const Tensor& weight, double eps) {
  const ProfileOp profile("rms_norm");
  return row_norm({.op = "rms_norm", .normalized = normalized, .centred = false, .eps = eps}, x,
                  weight, {});
}

}  // namespace weft
