#include "ops/index.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/elementwise.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements

// The index as contiguous i64, checked against `size`; perhaps the caller's own memory, so that
// whoever keeps it for backward keeps it as Saved.
Tensor checked_index(const char* op, const Tensor& index, int64_t size) {
  detail::check_defined(op, index);
  WEFT_CHECK(index.dtype() == i64 || index.dtype() == i32, op,
             "expected an index of i64 or i32, got ", index.dtype());
  const Tensor flat = contiguous(to(index, i64));
  const int64_t* values = flat.data<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    WEFT_CHECK(values[i] >= 0 && values[i] < size, op, "expected indices in [0, ", size, "), got ",
               values[i], " at position ", i, " of shape ", index.shape());
  }
  return flat;
}

// A contiguous tensor seen as [outer, size, inner] around `dim`.
struct Around {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};

Around around(const Shape& shape, int dim) {
  Around a;
  for (int i = 0; i < dim; ++i)
    a.outer *= shape[i];
  a.size = shape[dim];
  for (int i = dim + 1; i < shape.dims(); ++i)
    a.inner *= shape[i];
  return a;
}

// Calls visit(position, offset): positions of `index_shape` in row-major order, offsets into a
// contiguous tensor of `shape` with the indexed dim left out.
template <class F>
void for_positions(const Shape& shape, const Shape& index_shape, int dim, int64_t begin,
                   int64_t end, F visit) {
  if (begin >= end) return;  // a size may be 0
  const Strides strides = contiguous_strides(shape);
  std::array<int64_t, kMaxDims> at{};
  int64_t rest = begin;
  int64_t offset = 0;
  for (int d = index_shape.dims() - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] = rest % index_shape[d];
    rest /= index_shape[d];
    if (d != dim) offset += at[static_cast<size_t>(d)] * strides[d];
  }
  for (int64_t position = begin; position < end; ++position) {
    visit(position, offset);
    for (int d = index_shape.dims() - 1; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      const int64_t step = d == dim ? 0 : strides[d];
      offset += step;
      if (++at[i] < index_shape[d]) break;
      offset -= step * at[i];
      at[i] = 0;
    }
  }
}

void check_index_shape(const char* op, const Tensor& x, int dim, const Tensor& index) {
  detail::check_defined(op, index);
  WEFT_CHECK(index.dims() == x.dims(), op, "expected an index of ", x.dims(), " dims for ",
             x.shape(), ", got ", index.shape());
  for (int d = 0; d < x.dims(); ++d) {
    WEFT_CHECK(d == dim || index.shape()[d] <= x.shape()[d], op,
               "expected an index no larger than ", x.shape(), " outside dim ", dim, ", got ",
               index.shape());
  }
}

// Adds src at the indexed places of `sums`, both contiguous and of one compute dtype. One thread,
// one order.
void add_at(const Tensor& sums, int dim, const Tensor& index, const Tensor& src) {
  const int64_t* indices = index.data<int64_t>();
  const int64_t stride = contiguous_strides(sums.shape())[dim];
  dispatch_all(sums.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                  std::is_same_v<T, int64_t>) {
      T* out = sums.data<T>();
      const T* in = src.data<T>();
      for_positions(sums.shape(), index.shape(), dim, 0, index.numel(),
                    [&](int64_t position, int64_t offset) {
                      out[offset + indices[position] * stride] += in[position];
                    });
    }
  });
}

// zeros(shape) + g at the indexed places, in g's dtype.
Tensor scattered(const Shape& shape, int dim, const Tensor& index, const Tensor& g) {
  const DType compute = compute_dtype(g.dtype());
  const Tensor sums = zeros(shape, {.dtype = compute});
  add_at(sums, dim, index, contiguous(to(g, compute)));
  return to(sums, g.dtype());
}

// Copies the slices that index names.
void select_slices(const Tensor& out, const Tensor& x, const Around& a, const Tensor& index) {
  const int64_t* indices = index.data<int64_t>();
  const int64_t count = index.numel();
  const int64_t width = a.inner * size_of(x.dtype());
  const std::byte* from = x.raw();
  std::byte* to = out.raw();
  parallel_for(0, a.outer * count, std::max<int64_t>(1, kGrain / std::max<int64_t>(a.inner, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t slice = i / count * a.size + indices[i % count];
                   std::memcpy(to + i * width, from + slice * width, static_cast<size_t>(width));
                 }
               });
}

// The adjoint: adds slices of g [outer, count, inner] to those of zeros [outer, size, inner].
// Threads share out the columns, so that each sum runs over the index in order.
Tensor add_slices(const Shape& shape, const Around& a, const Tensor& index, const Tensor& g) {
  const DType compute = compute_dtype(g.dtype());
  const Tensor sums = zeros(shape, {.dtype = compute});
  const Tensor source = contiguous(to(g, compute));
  const int64_t* indices = index.data<int64_t>();
  const int64_t count = index.numel();
  const int64_t column_grain =
      std::max<int64_t>(16, kGrain / std::max<int64_t>(count * a.outer, 1));
  const auto run = [&]<class T>(T* out, const T* in) {
    parallel_for(0, a.inner, column_grain, [&](int64_t begin, int64_t end) {
      for (int64_t o = 0; o < a.outer; ++o) {
        for (int64_t i = 0; i < count; ++i) {
          T* sum = out + (o * a.size + indices[i]) * a.inner;
          const T* add = in + (o * count + i) * a.inner;
          for (int64_t c = begin; c < end; ++c)
            sum[c] += add[c];
        }
      }
    });
  };
  if (compute == f32) {
    run(sums.data<float>(), source.data<float>());
  } else {
    run(sums.data<double>(), source.data<double>());
  }
  return to(sums, g.dtype());
}

int indexed_dim(const char* op, const Tensor& x, int64_t dim) {
  detail::check_defined(op, x);
  WEFT_CHECK(x.dims() > 0, op, "expected a tensor of at least one dim, got a scalar");
  return wrap_dim(dim, x.dims(), op);
}

Tensor select_rows(const char* name, const Tensor& x, int dim, const Tensor& index,
                   const Shape& out_shape) {
  const Around a = around(x.shape(), dim);
  const Tensor checked = checked_index(name, index, a.size);
  Tensor out = empty(out_shape, x.options());
  select_slices(out, contiguous(x.detach()), a, checked);
  if (recording(x)) {
    record(name, out, inputs(x),
           [name, shape = x.shape(), a, index = Saved(checked)](const Tensor& g, Gradients& to) {
             to.set(0, add_slices(shape, a, index.get(name), g));
           });
  }
  return out;
}

}  // namespace

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const ProfileOp profile("gather");
  const int along = indexed_dim("gather", x, dim);
  check_index_shape("gather", x, along, index);
  const Tensor checked = checked_index("gather", index, x.shape()[along]);
  const Tensor source = contiguous(x.detach());
  Tensor out = empty(index.shape(), x.options());
  const int64_t stride = contiguous_strides(x.shape())[along];
  const int64_t* indices = checked.data<int64_t>();
  const auto width = static_cast<size_t>(size_of(x.dtype()));
  parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for_positions(x.shape(), index.shape(), along, begin, end,
                  [&](int64_t position, int64_t offset) {
                    const auto at = static_cast<size_t>(offset + indices[position] * stride);
                    std::memcpy(out.raw() + static_cast<size_t>(position) * width,
                                source.raw() + at * width, width);
                  });
  });
  if (recording(x)) {
    record("gather", out, inputs(x),
           [along, saved = Saved(checked), shape = x.shape()](const Tensor& g, Gradients& to) {
             to.set(0, scattered(shape, along, saved.get("gather"), g));
           });
  }
  return out;
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  const ProfileOp profile("index_select");
  const int along = indexed_dim("index_select", x, dim);
  detail::check_defined("index_select", index);
  WEFT_CHECK(index.dims() == 1, "index_select", "expected an index of one dim, got ",
             index.shape());
  Shape shape = x.shape();
  shape[along] = index.numel();
  return select_rows("index_select", x, along, index, shape);
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const ProfileOp profile("scatter_add");
  const int along = indexed_dim("scatter_add", x, dim);
  check_index_shape("scatter_add", x, along, index);
  detail::check_defined("scatter_add", src);
  WEFT_CHECK(src.shape() == index.shape() && src.dtype() == x.dtype(), "scatter_add",
             "expected a source of shape ", index.shape(), " and dtype ", x.dtype(), ", got ",
             src.shape(), " and ", src.dtype());
  const Tensor checked = checked_index("scatter_add", index, x.shape()[along]);
  const DType compute = compute_dtype(x.dtype());
  const Tensor sums = empty(x.shape(), {.dtype = compute});
  {
    const NoGrad no_grad;
    copy_(sums, x);
    add_at(sums, along, checked, contiguous(to(src, compute)));
  }
  Tensor out = to(sums, x.dtype());
  if (recording(x, src)) {
    record("scatter_add", out, inputs(x, src),
           [along, saved = Saved(checked)](const Tensor& g, Gradients& to) {
             if (to.wants(0)) to.set(0, g);
             if (to.wants(1)) to.set(1, gather(g, along, saved.get("scatter_add")));
           });
  }
  return out;
}

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  const ProfileOp profile("embedding");
  detail::check_defined("embedding", weight);
  detail::check_defined("embedding", ids);
  WEFT_CHECK(weight.dims() == 2, "embedding", "expected a weight [entries, width], got ",
             weight.shape());
  Shape shape = ids.shape();
  shape.push_back(weight.shape()[1]);
  return select_rows("embedding", weight, 0, ids, shape);
}

Tensor one_hot(const Tensor& ids, int64_t classes) {
  const ProfileOp profile("one_hot");
  WEFT_CHECK(classes >= 1, "one_hot", "expected at least one class, got ", classes);
  const Tensor checked = checked_index("one_hot", ids, classes);
  Shape shape = ids.shape();
  shape.push_back(classes);
  const Tensor out = zeros(shape, {.dtype = i64});
  const int64_t* indices = checked.data<int64_t>();
  int64_t* values = out.data<int64_t>();
  for (int64_t i = 0; i < checked.numel(); ++i)
    values[i * classes + indices[i]] = 1;
  return out;
}

}  // namespace weft
