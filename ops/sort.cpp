#include "ops/sort.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/index.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace weft {
namespace {

template <class T>
bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  }
  return a < b;
}

// Indices of the first k elements of each lane along `dim`, in order.
Tensor order(const char* op, const Tensor& x, int64_t dim, int64_t k, bool descending) {
  const DType compute = compute_dtype(x.dtype());
  const int along = wrap_dim(dim, x.dims(), op);
  const Tensor values = contiguous(to(x.detach(), compute));
  Shape shape = x.shape();
  const int64_t size = x.dims() > 0 ? shape[along] : 1;
  int64_t inner = 1;
  for (int d = along + 1; d < x.dims(); ++d)
    inner *= shape[d];
  if (x.dims() > 0) shape[along] = k;
  const Tensor out = empty(shape, {.dtype = i64});
  if (out.numel() == 0) return out;
  int64_t* indices = out.data<int64_t>();
  dispatch_all(compute, [&]<class T>() {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                  std::is_same_v<T, int64_t>) {
      const T* data = values.data<T>();
      parallel_for(0, x.numel() / size, std::max<int64_t>(1, 4096 / size),
                   [&](int64_t begin, int64_t end) {
                     std::vector<int64_t> lane(static_cast<size_t>(size));
                     for (int64_t i = begin; i < end; ++i) {
                       const T* first = data + i / inner * size * inner + i % inner;
                       // Ties go by position, which makes the order total: any sort is then the
                       // stable one.
                       const auto before = [&](int64_t a, int64_t b) {
                         const T left = first[a * inner];
                         const T right = first[b * inner];
                         if (descending ? less(right, left) : less(left, right)) return true;
                         if (descending ? less(left, right) : less(right, left)) return false;
                         return a < b;
                       };
                       std::iota(lane.begin(), lane.end(), int64_t{0});
                       if (k == size) {
                         std::sort(lane.begin(), lane.end(), before);
                       } else {
                         std::partial_sort(lane.begin(), lane.begin() + k, lane.end(), before);
                       }
                       int64_t* to = indices + i / inner * k * inner + i % inner;
                       for (int64_t j = 0; j < k; ++j)
                         to[j * inner] = lane[static_cast<size_t>(j)];
                     }
                   });
    }
  });
  return out;
}

ValuesIndices taken(const Tensor& x, int64_t dim, Tensor indices) {
  if (x.dims() == 0) return {clone(x), std::move(indices)};
  Tensor values = gather(x, dim, indices);
  return {std::move(values), std::move(indices)};
}

}  // namespace

ValuesIndices sort(const Tensor& x, int64_t dim, bool descending) {
  const ProfileOp profile("sort");
  return taken(x, dim, argsort(x, dim, descending));
}

Tensor argsort(const Tensor& x, int64_t dim, bool descending) {
  const ProfileOp profile("argsort");
  detail::check_defined("sort", x);
  const int along = wrap_dim(dim, x.dims(), "sort");
  return order("sort", x, dim, x.dims() > 0 ? x.shape()[along] : 1, descending);
}

ValuesIndices topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const ProfileOp profile("topk");
  detail::check_defined("topk", x);
  const int along = wrap_dim(dim, x.dims(), "topk");
  const int64_t size = x.dims() > 0 ? x.shape()[along] : 1;
  WEFT_CHECK(k >= 0 && k <= size, "topk", "expected k in [0, ", size, "] for dim ", along, " of ",
             x.shape(), ", got ", k);
  WEFT_CHECK(x.dims() > 0 || k == 1, "topk", "expected k = 1 for a scalar, got ", k);
  return taken(x, dim, order("topk", x, dim, k, largest));
}

}  // namespace weft
