// Pooling kernels over NHWC images, vectorised over channels. They are ours rather than oneDNN's:
// its max pooling keeps no NaN and its backward is slower.
#include "ops/pool.h"

#include "autograd/record.h"
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/images.h"
#include "ops/detail/lanes.h"
#include "ops/detail/pool_windows.h"

#include <algorithm>
#include <limits>
#include <memory>

namespace weft {
namespace {

using detail::broadcast;
using detail::for_lanes;
using detail::load;
using detail::Packet;
using detail::PoolAxis;
using detail::PoolSpan;
using detail::PoolUse;
using detail::PoolWindow;
using detail::store;
using functors::where;

struct Pool {
  Shape in;  // N, C, H, W
  Shape out;
  PoolAxis rows;
  PoolAxis columns;

  int64_t channels() const { return in[1]; }
  const PoolWindow& row(int64_t i) const { return rows.windows[static_cast<size_t>(i)]; }
  const PoolWindow& column(int64_t i) const { return columns.windows[static_cast<size_t>(i)]; }
};

// Calls visit(output row over all images, its window, address of its image).
template <class T, class F>
void for_output_rows(const Pool& pool, const Tensor& x, F visit) {
  const int64_t outputs = pool.out[2];
  const int64_t image = pool.in[1] * pool.in[2] * pool.in[3];
  const int64_t work =
      pool.out[3] * pool.channels() * pool.rows.taps * std::min<int64_t>(pool.columns.taps, 64);
  const T* data = x.data<T>();
  parallel_for(0, pool.out[0] * outputs, detail::row_grain(work / 2),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r)
                   visit(r, pool.row(r % outputs), data + r / outputs * image);
               });
}

// Calls visit(output row over all images, tap, address of the input's gradient row, is the first to
// write it) for every output row that sees an input row, in ascending order. Rows belong to one
// thread, so the order of each sum is fixed. Input rows that the first visit would not fill are
// zero before it.
template <class T, class F>
void for_input_rows(const Pool& pool, const Tensor& dx, F visit) {
  const int64_t inputs = pool.in[2];
  const int64_t length = pool.in[3] * pool.channels();
  const int64_t work =
      length * static_cast<int64_t>(pool.rows.uses.size() / static_cast<size_t>(inputs) + 1);
  T* data = dx.data<T>();
  parallel_for(0, pool.in[0] * inputs, detail::row_grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* to = data + r * length;
      const auto at = static_cast<size_t>(r % inputs);
      const std::span<const PoolUse> uses(pool.rows.uses.data() + pool.rows.first_use[at],
                                          pool.rows.uses.data() + pool.rows.first_use[at + 1]);
      bool fresh = pool.columns.tiles && !uses.empty();
      if (!fresh) std::fill_n(to, length, T(0));
      for (const PoolUse& use : uses) {
        visit(r / inputs * pool.out[2] + use.window, use.tap, to, fresh);
        fresh = false;
      }
    }
  });
}

// Lanes that hold the place of the largest value beside lanes that hold the value.
template <class V>
struct PlaceOf {
  using type = Packet<std::conditional_t<sizeof(V{}[0]) == 8, int64_t, int32_t>>;
};
template <>
struct PlaceOf<float> {
  using type = int32_t;
};
template <>
struct PlaceOf<double> {
  using type = int64_t;
};
template <class V>
using Place = typename PlaceOf<V>::type;

template <class I, class P>
inline void store_place(I* to, P place) {
  if constexpr (std::is_arithmetic_v<P>) {
    *to = static_cast<I>(place);
  } else {
    typedef I Narrow __attribute__((vector_size(sizeof(P) / sizeof(place[0]) * sizeof(I))));
    store(to, __builtin_convertvector(place, Narrow));
  }
}

template <class P, class I>
inline P load_place(const I* from) {
  if constexpr (std::is_arithmetic_v<P>) {
    return static_cast<P>(*from);
  } else {
    typedef I Narrow __attribute__((vector_size(sizeof(P) / sizeof(P{}[0]) * sizeof(I))));
    return __builtin_convertvector(load<Narrow>(from), P);
  }
}

// One window: taps[k] is the address of its k-th value, places[k] its number. Fixed > 0 is a count
// known when compiling. `index` may be null.
template <int Fixed, class T, class I>
void max_window(const T* const* taps, const int32_t* places, int64_t count, int64_t channels,
                T* out, I* index) {
  if constexpr (Fixed > 0) count = Fixed;
  for_lanes<T>(channels, [&]<class V>(int64_t c) {
    V best = load<V>(taps[0] + c);
    auto place = broadcast<Place<V>>(places[0]);
    for (int64_t k = 1; k < count; ++k) {
      const V value = load<V>(taps[k] + c);
      const auto take = (value > best) | (value != value);  // NaN takes over and stays
      best = where(take, value, best);
      place = where(take, broadcast<Place<V>>(places[k]), place);
    }
    store(out + c, best);
    if (index) store_place(index + c, place);
  });
}

template <class T, class I>
void max_forward(const Pool& pool, const Tensor& x, const Tensor& out, I* index) {
  const int64_t channels = pool.channels();
  const int64_t width = pool.in[3] * channels;
  for_output_rows<T>(pool, x, [&](int64_t r, const PoolWindow& row, const T* image) {
    std::vector<const T*> taps;
    std::vector<int32_t> places;
    taps.reserve(static_cast<size_t>((row.end - row.first) * pool.columns.taps));
    places.reserve(taps.capacity());
    for (int64_t w = 0; w < pool.out[3]; ++w) {
      const PoolWindow& column = pool.column(w);
      taps.clear();
      places.clear();
      for (int64_t i = row.first; i < row.end; ++i) {
        const T* line = image + (row.start + i * pool.rows.dilation) * width;
        for (int64_t j = column.first; j < column.end; ++j) {
          taps.push_back(line + (column.start + j * pool.columns.dilation) * channels);
          places.push_back(static_cast<int32_t>(i * pool.columns.taps + j));
        }
      }
      const int64_t at = (r * pool.out[3] + w) * channels;
      T* to = out.data<T>() + at;
      I* to_index = index ? index + at : nullptr;
      if (taps.empty()) {  // all taps of a dilated window can miss the input; nobody takes its
                           // gradient
        std::fill_n(to, channels, -std::numeric_limits<T>::infinity());
        if (index) std::fill_n(to_index, channels, I(0));
        continue;
      }
      const auto count = static_cast<int64_t>(taps.size());
      const auto run = count == 4   ? max_window<4, T, I>
                       : count == 9 ? max_window<9, T, I>
                                    : max_window<0, T, I>;
      run(taps.data(), places.data(), count, channels, to, to_index);
    }
  });
}

template <class T, class I>
void max_backward(const Pool& pool, const Tensor& g, const I* index, const Tensor& dx) {
  const int64_t channels = pool.channels();
  for_input_rows<T>(pool, dx, [&](int64_t r, int64_t tap, T* to, bool fresh) {
    for (int64_t w = 0; w < pool.out[3]; ++w) {
      const PoolWindow& column = pool.column(w);
      const int64_t at = (r * pool.out[3] + w) * channels;
      const T* gradient = g.data<T>() + at;
      for_lanes<T>(channels, [&]<class V>(int64_t c) {
        const V value = load<V>(gradient + c);
        const auto place = load_place<Place<V>>(index + at + c);
        for (int64_t j = column.first; j < column.end; ++j) {
          T* target = to + (column.start + j * pool.columns.dilation) * channels + c;
          const V part =
              where(place == broadcast<Place<V>>(tap * pool.columns.taps + j), value, V{});
          store(target, fresh ? part : load<V>(target) + part);
        }
      });
    }
  });
}

template <class T>
void mean_forward(const Pool& pool, const Tensor& x, const Tensor& out) {
  const int64_t channels = pool.channels();
  const int64_t width = pool.in[3] * channels;
  for_output_rows<T>(pool, x, [&](int64_t r, const PoolWindow& row, const T* image) {
    for (int64_t w = 0; w < pool.out[3]; ++w) {
      const PoolWindow& column = pool.column(w);
      T* to = out.data<T>() + (r * pool.out[3] + w) * channels;
      const auto places = static_cast<T>(row.places * column.places);
      for_lanes<T>(channels, [&]<class V>(int64_t c) {
        V sum{};
        for (int64_t i = row.first; i < row.end; ++i) {
          const T* line = image + (row.start + i) * width + column.start * channels + c;
          V row_sum{};  // two levels lose less than one long chain
          for (int64_t j = column.first; j < column.end; ++j)
            row_sum += load<V>(line + j * channels);
          sum += row_sum;
        }
        store(to + c, sum / broadcast<V>(places));
      });
    }
  });
}

template <class T>
void mean_backward(const Pool& pool, const Tensor& g, const Tensor& dx) {
  const int64_t channels = pool.channels();
  for_input_rows<T>(pool, dx, [&](int64_t r, int64_t, T* to, bool fresh) {
    const int64_t row_places = pool.row(r % pool.out[2]).places;
    for (int64_t w = 0; w < pool.out[3]; ++w) {
      const PoolWindow& column = pool.column(w);
      const T* gradient = g.data<T>() + (r * pool.out[3] + w) * channels;
      const auto places = static_cast<T>(row_places * column.places);
      for_lanes<T>(channels, [&]<class V>(int64_t c) {
        const V value = load<V>(gradient + c) / broadcast<V>(places);
        for (int64_t j = column.first; j < column.end; ++j) {
          T* target = to + (column.start + j) * channels + c;
          store(target, fresh ? value : load<V>(target) + value);
        }
      });
    }
  });
}

// f.operator()<T>() with T = float or double.
template <class F>
void dispatch_compute(DType dtype, F f) {
  if (dtype == DType::f64) return f.template operator()<double>();
  f.template operator()<float>();
}

// The operator around the kernels: `x` is any floating tensor, kernels see NHWC of the compute
// type.
Tensor pooled_max(const char* name, const Tensor& x, std::shared_ptr<const Pool> pool) {
  const DType compute = compute_dtype(x.dtype());
  const Tensor out = detail::empty_images(pool->out, compute);
  const bool is_recording = recording(x);
  const int64_t places = pool->rows.taps * pool->columns.taps;
  WEFT_CHECK(places <= std::numeric_limits<int32_t>::max(), name,
             "expected windows of at most 2147483647 places, got ", places);
  const bool narrow = places <= 255;
  const Tensor index = is_recording ? detail::empty_images(pool->out, narrow ? u8 : i32) : Tensor();
  if (out.numel() > 0) {
    const Tensor images = detail::images(x, compute);
    profile_work(out.numel() * places,
                 images.bytes() + out.bytes() + (is_recording ? index.bytes() : 0));
    dispatch_compute(compute, [&]<class T>() {
      if (narrow) {
        max_forward<T>(*pool, images, out, is_recording ? index.data<uint8_t>() : nullptr);
      } else {
        max_forward<T>(*pool, images, out, is_recording ? index.data<int32_t>() : nullptr);
      }
    });
  }
  const Tensor result = detail::images(out, x.dtype());
  if (is_recording) {
    record(name, result, inputs(x),
           [pool, index, compute, dtype = x.dtype()](const Tensor& g, Gradients& to) {
             const Tensor dx = detail::empty_images(pool->in, compute);
             if (dx.numel() > 0) {
               const Tensor gradient = detail::images(g, compute);
               profile_work(g.numel(), gradient.bytes() + index.bytes() + dx.bytes());
               dispatch_compute(compute, [&]<class T>() {
                 if (index.dtype() == u8) {
                   max_backward<T>(*pool, gradient, index.data<uint8_t>(), dx);
                 } else {
                   max_backward<T>(*pool, gradient, index.data<int32_t>(), dx);
                 }
               });
             }
             to.set(0, weft::to(dx, dtype));
           });
  }
  return result;
}

Tensor pooled_mean(const char* name, const Tensor& x, std::shared_ptr<const Pool> pool) {
  const DType compute = compute_dtype(x.dtype());
  const Tensor out = detail::empty_images(pool->out, compute);
  if (out.numel() > 0) {
    const Tensor images = detail::images(x, compute);
    profile_work(x.numel(), images.bytes() + out.bytes());
    dispatch_compute(compute, [&]<class T>() { mean_forward<T>(*pool, images, out); });
  }
  const Tensor result = detail::images(out, x.dtype());
  if (recording(x)) {
    record(name, result, inputs(x),
           [pool, compute, dtype = x.dtype()](const Tensor& g, Gradients& to) {
             const Tensor dx = detail::empty_images(pool->in, compute);
             if (dx.numel() > 0) {
               const Tensor gradient = detail::images(g, compute);
               profile_work(dx.numel(), gradient.bytes() + dx.bytes());
               dispatch_compute(compute, [&]<class T>() { mean_backward<T>(*pool, gradient, dx); });
             }
             to.set(0, weft::to(dx, dtype));
           });
  }
  return result;
}

void check_images(const char* op, const Tensor& x) {
  detail::check_defined(op, x);
  WEFT_CHECK(x.dims() == 4 && x.size(1) > 0 && x.size(2) > 0 && x.size(3) > 0, op,
             "expected images [N, C, H, W] with at least one channel and pixel, got shape ",
             x.shape());
  WEFT_CHECK(is_floating(x.dtype()), op, "expected a floating dtype, got ", x.dtype());
}

void check_pair(const char* op, const char* name, const Shape& value, int64_t least) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  WEFT_CHECK(value.dims() == 2 && std::min(value[0], value[1]) >= least &&
                 std::max(value[0], value[1]) <= most,
             op, "expected ", name, " of two numbers (height, width) of at least ", least, ", got ",
             value);
}

// Checks one pooling's arguments and lays out its windows.
std::shared_ptr<const Pool> make_pool(const char* op, const Tensor& x, const Shape& kernel,
                                      const Shape& stride, const Shape& padding,
                                      const Shape& dilation, bool ceil_mode, bool count_padding) {
  check_images(op, x);
  check_pair(op, "a kernel", kernel, 1);
  check_pair(op, "a stride", stride, 1);
  check_pair(op, "a padding", padding, 0);
  check_pair(op, "a dilation", dilation, 1);
  auto pool = std::make_shared<Pool>();
  pool->in = x.shape();
  pool->out = {x.size(0), x.size(1), 0, 0};
  std::array<PoolSpan, 2> spans;
  for (int i = 0; i < 2; ++i) {
    PoolSpan& span = spans[static_cast<size_t>(i)];
    span = {x.size(2 + i), kernel[i], stride[i], padding[i], dilation[i], ceil_mode, count_padding};
    WEFT_CHECK(2 * padding[i] <= dilation[i] * (kernel[i] - 1) + 1, op,
               "expected a padding of at most half the kernel's extent, got padding ", padding,
               ", kernel ", kernel, ", dilation ", dilation);
    pool->out[2 + i] = detail::pool_outputs(span);
    WEFT_CHECK(pool->out[2 + i] > 0, op,
               "expected a kernel that fits into the padded images, got images ", x.shape(),
               ", kernel ", kernel, ", padding ", padding, ", dilation ", dilation);
  }
  checked_numel(pool->out, size_of(x.dtype()), op);
  if (x.numel() == 0) return pool;  // no images: nothing looks at the windows
  pool->rows = detail::pool_axis(spans[0]);
  pool->columns = detail::pool_axis(spans[1]);
  return pool;
}

std::shared_ptr<const Pool> make_adaptive_pool(const char* op, const Tensor& x, const Shape& size) {
  check_images(op, x);
  check_pair(op, "a size", size, 1);
  auto pool = std::make_shared<Pool>();
  pool->in = x.shape();
  pool->out = {x.size(0), x.size(1), size[0], size[1]};
  checked_numel(pool->out, size_of(x.dtype()), op);
  if (x.numel() == 0) return pool;
  pool->rows = detail::adaptive_axis(x.size(2), size[0]);
  pool->columns = detail::adaptive_axis(x.size(3), size[1]);
  return pool;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Shape& kernel, const MaxPool2dOptions& options) {
  const ProfileOp profile("max_pool2d");
  const char* op = "max_pool2d";
  const Shape& stride = options.stride.empty() ? kernel : options.stride;
  return pooled_max(op, x,
                    make_pool(op, x, kernel, stride, options.padding, options.dilation,
                              options.ceil_mode, false));
}

Tensor avg_pool2d(const Tensor& x, const Shape& kernel, const AvgPool2dOptions& options) {
  const ProfileOp profile("avg_pool2d");
  const char* op = "avg_pool2d";
  const Shape& stride = options.stride.empty() ? kernel : options.stride;
  return pooled_mean(op, x,
                     make_pool(op, x, kernel, stride, options.padding, {1, 1}, options.ceil_mode,
                               options.count_include_pad));
}

Tensor adaptive_avg_pool2d(const Tensor& x, const Shape& size) {
  const ProfileOp profile("adaptive_avg_pool2d");
  const char* op = "adaptive_avg_pool2d";
  return pooled_mean(op, x, make_adaptive_pool(op, x, size));
}

Tensor adaptive_max_pool2d(const Tensor& x, const Shape& size) {
  const ProfileOp profile("adaptive_max_pool2d");
  const char* op = "adaptive_max_pool2d";
  return pooled_max(op, x, make_adaptive_pool(op, x, size));
}

}  // namespace weft
