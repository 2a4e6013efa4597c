#include "ops/softmax.h"

#include "autograd/record.h"
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/convert.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/reducers.h"
#include "ops/detail/runs.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft {

using namespace detail;

namespace {

constexpr int64_t kGrain = 4096;  // values below which a second thread costs more than it saves

// One tensor of equal shapes as lines along a dim.
struct Lines {
  const Tensor& tensor;
  Runs starts;
  int64_t stride = 1;

  Lines(const Tensor& lines, int dim, const std::array<int, kMaxDims>& order) : tensor(lines) {
    for (int i = 0; i < lines.dims(); ++i) {
      const int d = order[static_cast<size_t>(i)];
      if (d != dim) starts.push(lines.shape()[d], lines.strides()[d]);
    }
    if (lines.dims() > 0) stride = lines.strides()[dim];
  }
  std::byte* at(int64_t line) const {
    return tensor.raw() + starts.offset(line) * size_of(tensor.dtype());
  }
  template <class T>
  bool direct() const {
    return stride == 1 && tensor.dtype() == dtype_of<T>;
  }
  // The line's values side by side, as T: where they lie, or in `buffer`.
  template <class T>
  const T* load(int64_t line, int64_t count, T* buffer) const {
    if (direct<T>()) return reinterpret_cast<const T*>(at(line));
    load_run(buffer, at(line), tensor.dtype(), stride, count);
    return buffer;
  }
};

// Calls f(out, a, b, count) for every line along `dim`.
template <class T, class F>
void for_lines(const Tensor& out, const Tensor& a, const Tensor& b, int dim, const F& f) {
  if (out.numel() == 0) return;
  const int64_t count = out.dims() > 0 ? out.shape()[dim] : 1;
  const auto order = memory_order(
      out.strides());  // neighbouring lines share cache lines where count is not innermost
  const Lines to(out, dim, order);
  const Lines first(a, dim, order);
  const Lines second(b, dim, order);
  parallel_for(0, out.numel() / count, std::max<int64_t>(1, kGrain / count),
               [&](int64_t begin, int64_t end) {
                 const bool buffered = !to.direct<T>() || !first.direct<T>() || !second.direct<T>();
                 // For the lines of each tensor that do not lie in T, one after another.
                 std::vector<T> buffer(buffered ? static_cast<size_t>(3 * count) : 0);
                 T* const result_line = buffer.data();
                 T* const first_line = buffered ? result_line + count : nullptr;
                 T* const second_line = buffered ? first_line + count : nullptr;
                 for (int64_t line = begin; line < end; ++line) {
                   T* result = to.direct<T>() ? reinterpret_cast<T*>(to.at(line)) : result_line;
                   f(result, first.load(line, count, first_line),
                     second.load(line, count, second_line), count);
                   if (!to.direct<T>())
                     store_run(to.at(line), out.dtype(), to.stride, result, count);
                 }
               });
}

// out[i] = f(a[i], b[i]), the last few through padded packets.
template <class T, class F>
void map_line(T* out, const T* a, const T* b, int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    const Packet<T> y = f(load_packet<T>(a + i), load_packet<T>(b + i));
    std::memcpy(out + i, &y, sizeof y);
  }
  if (i == count) return;
  T left[kLanes<T>]{};
  T right[kLanes<T>]{};
  std::copy(a + i, a + count, left);
  std::copy(b + i, b + count, right);
  const Packet<T> y = f(load_packet<T>(left), load_packet<T>(right));
  std::memcpy(out + i, &y, static_cast<size_t>(count - i) * sizeof(T));
}

template <class T>
void softmax_line(T* out, const T* x, int64_t count, bool log) {
  using V = Packet<T>;
  const T most = reduce_line(Plain<Maximal>{}, x, count);
  if (log) {
    const T scale = std::log(reduce_line(CentredExps{}, x, count, most));
    return map_line(out, x, x, count, [=](V v, V) { return (v - most) - scale; });
  }
  map_line(out, x, x, count, [=](V v, V) { return functors::exp(v - most); });
  const T total = reduce_line(Plain<Adding>{}, out, count);
  map_line(out, out, out, count, [=](V v, V) { return v / total; });
}

// y · (g - Σ g y), and g - exp(y) Σ g.
template <class T>
void gradient_line(T* dx, const T* g, const T* y, int64_t count, bool log) {
  using V = Packet<T>;
  if (log) {
    const T total = reduce_line(Plain<Adding>{}, g, count);
    return map_line(dx, g, y, count, [=](V a, V b) { return a - functors::exp(b) * total; });
  }
  map_line(dx, g, y, count, [](V a, V b) { return a * b; });
  const T mean = reduce_line(Plain<Adding>{}, dx, count);
  map_line(dx, g, y, count, [=](V a, V b) { return b * (a - mean); });
}

template <class F>
void by_compute_type(DType dtype, const F& f) {
  if (dtype == f64) return f.template operator()<double>();
  f.template operator()<float>();
}

Tensor softmax_along(const char* name, const Tensor& x, int64_t dim, bool log) {
  check_floating(name, x);
  const int along = wrap_dim(dim, x.dims(), name);
  Tensor out = empty_like(x);
  by_compute_type(x.dtype(), [&]<class T>() {
    for_lines<T>(out, x, x, along, [=](T* y, const T* values, const T*, int64_t count) {
      softmax_line(y, values, count, log);
    });
  });
  if (recording(x)) {
    record(name, out, inputs(x),
           [name, y = Saved::output(out), along, log](const Tensor& g, Gradients& to) {
             const Tensor& value = y.get(name);
             const Tensor dx = empty_like(value);
             by_compute_type(value.dtype(), [&]<class T>() {
               for_lines<T>(dx, g, value, along,
                            [=](T* d, const T* gradient, const T* result, int64_t count) {
                              gradient_line(d, gradient, result, count, log);
                            });
             });
             to.set(0, dx);
           });
  }
  return out;
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) {
  const ProfileOp profile("softmax");
  return softmax_along("softmax", x, dim, false);
}
Tensor log_softmax(const Tensor& x, int64_t dim) {
  const ProfileOp profile("log_softmax");
  return softmax_along("log_softmax", x, dim, true);
}

}  // namespace weft
