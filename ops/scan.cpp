#include "ops/scan.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"

#include <algorithm>

namespace weft {
namespace {

// Sums along `dim` from the front, or from the back, of a contiguous tensor of a compute dtype.
template <class T>
void scan(const Tensor& out, const Tensor& x, int dim, bool from_back) {
  const int64_t size = x.shape()[dim];
  int64_t inner = 1;
  for (int d = dim + 1; d < x.dims(); ++d)
    inner *= x.shape()[d];
  const T* in = x.data<T>();
  T* sums = out.data<T>();
  parallel_for(0, x.numel() / size, std::max<int64_t>(1, 4096 / size),
               [&](int64_t begin, int64_t end) {
                 for (int64_t lane = begin; lane < end; ++lane) {
                   const int64_t start = lane / inner * size * inner + lane % inner;
                   T sum{};
                   for (int64_t i = 0; i < size; ++i) {
                     const int64_t at = start + (from_back ? size - 1 - i : i) * inner;
                     sum += in[at];
                     sums[at] = sum;
                   }
                 }
               });
}

Tensor scanned(const Tensor& x, int dim, bool from_back) {
  const DType compute = compute_dtype(x.dtype());
  const Tensor source = contiguous(to(x, compute));
  const Tensor out = empty(x.shape(), {.dtype = compute});
  if (x.numel() > 0) {
    if (compute == f32) {
      scan<float>(out, source, dim, from_back);
    } else if (compute == f64) {
      scan<double>(out, source, dim, from_back);
    } else {
      scan<int64_t>(out, source, dim, from_back);
    }
  }
  return is_floating(x.dtype()) ? to(out, x.dtype()) : out;
}

}  // namespace

Tensor cumsum(const Tensor& x, int64_t dim) {
  const ProfileOp profile("cumsum");
  detail::check_defined("cumsum", x);
  const int along = wrap_dim(dim, x.dims(), "cumsum");
  if (x.dims() == 0) return is_floating(x.dtype()) ? clone(x) : to(x, i64);
  Tensor out = scanned(x.detach(), along, false);
  if (recording(x)) {
    record("cumsum", out, inputs(x),
           [along](const Tensor& g, Gradients& to) { to.set(0, scanned(g, along, true)); });
  }
  return out;
}

}  // namespace weft
