// The largest and smallest values, and where they are.
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/convert.h"
#include "ops/detail/gradient.h"
#include "ops/detail/reducers.h"
#include "ops/detail/runs.h"
#include "ops/index.h"
#include "ops/reduce.h"
#include "ops/view.h"

#include <algorithm>

namespace weft {

using namespace detail;

namespace {

// Ties share the gradient.
struct ExtremeGradient {
  template <class V>
  V operator()(V g, V x, V extreme, V ties) const {
    return where(x == extreme, g / ties, constant<V>(0));
  }
};

// The extreme of x over the set, reduced dims kept, in x's dtype.
template <class Extreme>
Tensor extreme_of(const char* name, const Tensor& x, DimSet set) {
  WEFT_CHECK(reduced_count(x, set) > 0, name,
             "expected at least one value to choose from, got shape ", x.shape());
  return reduce<Numbers::any>(x, set, x.dtype(), Plain<Extreme>{});
}

template <class Extreme>
Tensor extreme(const char* name, const Tensor& x, const Shape& dims, bool keepdim) {
  check_defined(name, x);
  const DimSet set = dim_set(name, x, dims);
  const Tensor wide = extreme_of<Extreme>(name, x, set);
  Tensor out = drop_dims(wide, set, keepdim);
  if (recording(x)) {
    record(
        name, out, inputs(x),
        [name, x = Saved(x), wide = Saved::output(wide), set](const Tensor& g, Gradients& grads) {
          const Tensor& value = x.get(name);
          const DType compute = compute_dtype(value.dtype());
          const Tensor best = to(wide.get(name), compute);
          const Tensor ties = reduce<Numbers::real>(value, set, compute, CountEqual{}, best);
          grads.set(0, gradient_like(value, ExtremeGradient{}, restore_dims(g, value.shape(), set),
                                     value, best, ties));
        });
  }
  return out;
}

// For each value of `best` (x with `dim` reduced to size 1), the first index along dim that holds
// it.
template <class T>
void find_first(const Tensor& x, int dim, const Tensor& best, int64_t* out) {
  constexpr int64_t kStride = 64;  // values looked at together
  Runs lines;
  Runs values;
  for (int d = 0; d < x.dims(); ++d) {
    if (d == dim) continue;
    lines.push(x.shape()[d], x.strides()[d]);
    values.push(best.shape()[d], best.strides()[d]);
  }
  const int64_t length = x.dims() > 0 ? x.shape()[dim] : 1;
  const int64_t stride = x.dims() > 0 ? x.strides()[dim] : 1;
  const int64_t width = size_of(x.dtype());
  parallel_for(0, best.numel(), std::max<int64_t>(1, 16384 / length),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   T wanted;
                   load_run(&wanted, best.raw() + values.offset(i) * width, x.dtype(), 1, 1);
                   const std::byte* line = x.raw() + lines.offset(i) * width;
                   T buffer[kStride];
                   int64_t found = -1;
                   for (int64_t at = 0; found < 0 && at < length; at += kStride) {
                     const int64_t count = std::min(kStride, length - at);
                     load_run(buffer, line + at * stride * width, x.dtype(), stride, count);
                     for (int64_t k = 0; found < 0 && k < count; ++k) {
                       if (buffer[k] == wanted || (wanted != wanted && buffer[k] != buffer[k]))
                         found = at + k;
                     }
                   }
                   out[i] = found;
                 }
               });
}

Tensor index_of(const Tensor& x, int dim, const Tensor& best) {
  const Tensor index = empty(best.shape(), {i64, x.device()});
  switch (compute_dtype(x.dtype())) {
    case DType::f32:
      find_first<float>(x, dim, best, index.data<int64_t>());
      break;
    case DType::f64:
      find_first<double>(x, dim, best, index.data<int64_t>());
      break;
    default:
      find_first<int64_t>(x, dim, best, index.data<int64_t>());
      break;
  }
  return index;
}

template <class Extreme>
ValuesIndices extreme_along(const char* name, const Tensor& x, int64_t dim, bool keepdim) {
  check_defined(name, x);
  const int at = wrap_dim(dim, x.dims(), name);
  const DimSet set = DimSet{1} << at;
  const Tensor wide = extreme_of<Extreme>(name, x, set);
  const Tensor index = index_of(x, at, wide);
  ValuesIndices out{drop_dims(wide, set, keepdim), drop_dims(index, set, keepdim)};
  if (recording(x)) {
    record(
        name, out.values, inputs(x),
        [name, shape = x.shape(), saved = Saved(index), at, set](const Tensor& g, Gradients& to) {
          if (shape.empty()) return to.set(0, g);
          to.set(0, scatter_add(zeros(shape, g.options()), at, saved.get(name),
                                restore_dims(g, shape, set)));
        });
  }
  return out;
}

template <class Extreme>
Tensor position(const char* name, const Tensor& x, int64_t dim, bool keepdim) {
  check_defined(name, x);
  const int at = wrap_dim(dim, x.dims(), name);
  const DimSet set = DimSet{1} << at;
  return drop_dims(index_of(x, at, extreme_of<Extreme>(name, x, set)), set, keepdim);
}

template <class Extreme>
Tensor position(const char* name, const Tensor& x) {
  check_defined(name, x);
  const NoGrad no_grad;
  return position<Extreme>(name, reshape(x, {-1}), 0, false);
}

}  // namespace

Tensor amax(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("amax");
  return extreme<Maximal>("amax", x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("amin");
  return extreme<Minimal>("amin", x, dims, keepdim);
}
Tensor max(const Tensor& x) {
  const ProfileOp profile("max");
  return extreme<Maximal>("max", x, {}, false);
}
Tensor min(const Tensor& x) {
  const ProfileOp profile("min");
  return extreme<Minimal>("min", x, {}, false);
}

ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  const ProfileOp profile("max");
  return extreme_along<Maximal>("max", x, dim, keepdim);
}
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  const ProfileOp profile("min");
  return extreme_along<Minimal>("min", x, dim, keepdim);
}

Tensor argmax(const Tensor& x) {
  const ProfileOp profile("argmax");
  return position<Maximal>("argmax", x);
}
Tensor argmin(const Tensor& x) {
  const ProfileOp profile("argmin");
  return position<Minimal>("argmin", x);
}
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  const ProfileOp profile("argmax");
  return position<Maximal>("argmax", x, dim, keepdim);
}
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) {
  const ProfileOp profile("argmin");
  return position<Minimal>("argmin", x, dim, keepdim);
}

}  // namespace weft
