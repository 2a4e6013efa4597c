#include "ops/detail/reduce_loop.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/detail/convert.h"
#include "ops/detail/runs.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace weft::detail {
namespace {

constexpr int64_t kGrain = 16384;   // values below which a second thread costs more than it saves
constexpr int64_t kMinColumns = 8;  // narrower rows are faster one output at a time
constexpr int64_t kBatch = 64;      // outputs stored together

struct Space {
  Runs kept;
  Runs reduced;
  Shape shape;      // of the output, reduced dims as 1
  Strides strides;  // of the output: kept dims dense, in the order of `kept`
};

Space make_space(const Tensor& x, DimSet dims) {
  std::array<int, kMaxDims> order{};
  std::iota(order.begin(), order.end(), 0);
  if (!x.is_contiguous() && x.is_dense()) order = memory_order(x.strides());
  Space space;
  space.shape = x.shape();
  space.strides = x.strides();
  int64_t step = 1;
  for (int i = x.dims() - 1; i >= 0; --i) {
    const int dim = order[static_cast<size_t>(i)];
    space.strides[dim] = step;
    if (has_dim(dims, dim)) {
      space.shape[dim] = 1;
    } else {
      step *= std::max<int64_t>(x.shape()[dim], 1);
    }
  }
  for (int i = 0; i < x.dims(); ++i) {
    const int dim = order[static_cast<size_t>(i)];
    (has_dim(dims, dim) ? space.reduced : space.kept).push(x.shape()[dim], x.strides()[dim]);
  }
  return space;
}

// What both walks share.
template <class T>
struct Job {
  const Tensor& x;
  const Space& space;
  const Reducer& reducer;
  const T* centers;  // null for none
  const Tensor& out;

  int64_t count() const { return space.reduced.numel(); }
  int64_t pieces() const {
    return std::max<int64_t>(1, (count() + kReducePiece - 1) / kReducePiece);
  }
  bool same_type() const { return x.dtype() == dtype_of<T>; }
  int64_t width() const { return size_of(x.dtype()); }
  const std::byte* at(int64_t offset) const { return x.raw() + offset * width(); }
  void store(int64_t output, const T* values, int64_t number) const {
    store_run(out.raw() + output * size_of(out.dtype()), out.dtype(), 1, values, number);
  }
  // Folds the lanes of a strip into the first.
  void fold_strip(T* lanes) const {
    constexpr int64_t pitch = kReduceColumns<T>;
    for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
      reducer.combine(lanes, lanes + half * pitch, half * pitch);
  }
  // Folds the partial results of all pieces, `size` values each, into the first.
  void fold_pieces(T* partial, int64_t size) const {
    for (int64_t step = 1; step < pieces(); step *= 2) {
      for (int64_t p = 0; p + step < pieces(); p += 2 * step) {
        reducer.combine(partial + p * size, partial + (p + step) * size, size);
      }
    }
  }
};

// One output after another: each one's values are brought together, then folded along packets.
template <class T>
void reduce_rows(const Job<T>& job) {
  const int64_t outputs = job.space.kept.numel();
  const int64_t count = job.count();
  const int64_t pieces = job.pieces();
  const Tensor partial =
      pieces > 1 ? empty({outputs * pieces * kReduceLanes}, {.dtype = dtype_of<T>}) : Tensor();
  const int64_t grain = std::max<int64_t>(1, kGrain / std::clamp<int64_t>(count, 1, kReducePiece));
  parallel_for(0, outputs * pieces, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T scratch[kReducePiece];
    T results[kBatch];
    int64_t batched = 0;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t output = pieces == 1 ? task : task / pieces;
      const int64_t first = (task - output * pieces) * kReducePiece;
      const int64_t length = std::min(kReducePiece, count - first);
      const int64_t base = job.space.kept.offset(output);
      const T* in = scratch;
      job.space.reduced.visit(first, length, [&](int64_t offset, int64_t done, int64_t run) {
        const std::byte* from = job.at(base + offset);
        if (run == length && job.same_type() && job.space.reduced.inner_stride() == 1) {
          in = reinterpret_cast<const T*>(from);
        } else {
          load_run(scratch + done, from, job.x.dtype(), job.space.reduced.inner_stride(), run);
        }
      });
      const T center = job.centers ? job.centers[output] : T(0);
      if (pieces > 1) {
        job.reducer.row(in, length, &center, partial.data<T>() + task * kReduceLanes,
                        job.reducer.functor);
        continue;
      }
      T lanes[kReduceLanes];
      job.reducer.row(in, length, &center, lanes, job.reducer.functor);
      job.reducer.fold(lanes);
      results[batched++] = lanes[0];
      if (batched == kBatch || task + 1 == end) {
        job.store(output + 1 - batched, results, batched);
        batched = 0;
      }
    }
  });
  if (pieces == 1) return;
  parallel_for(0, outputs, std::max<int64_t>(1, kGrain / (pieces * kReduceLanes)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t output = begin; output < end; ++output) {
                   T* lanes = partial.data<T>() + output * pieces * kReduceLanes;
                   job.fold_pieces(lanes, kReduceLanes);
                   job.reducer.fold(lanes);
                   job.store(output, lanes, 1);
                 }
               });
}

// A strip of neighbouring outputs at a time: rows of memory are folded into one another.
template <class T>
class Strip {
 public:
  Strip(const Job<T>& job, int64_t base, int64_t width, const T* centers)
      : job_(job), base_(base), width_(width) {
    std::fill_n(centers_, kReduceColumns<T>, T(0));
    if (centers) std::copy_n(centers, width, centers_);
  }

  // Lanes of the blocks that hold values [first, last).
  void fold(int64_t first, int64_t last, T* lanes, int depth = 0) {
    if (last - first <= kReduceBlock) return fold_block(first, last - first, lanes);
    int64_t half = kReduceBlock;
    while (2 * half < last - first)
      half *= 2;
    fold(first, first + half, lanes, depth + 1);
    fold(first + half, last, levels_[depth], depth + 1);
    job_.reducer.combine(lanes, levels_[depth], kReduceLanes * kReduceColumns<T>);
  }

 private:
  void fold_block(int64_t first, int64_t count, T* lanes) {
    const void* rows[kReduceBlock];
    const Runs& reduced = job_.space.reduced;
    reduced.visit(first, count, [&](int64_t offset, int64_t done, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        const std::byte* from = job_.at(base_ + offset + i * reduced.inner_stride());
        if (!job_.same_type()) load_run(widened_[done + i], from, job_.x.dtype(), 1, width_);
        rows[done + i] = job_.same_type() ? static_cast<const void*>(from) : widened_[done + i];
      }
    });
    job_.reducer.columns(rows, count, width_, centers_, lanes, job_.reducer.functor);
  }

  static constexpr int kDepth = 6;  // log2(kReducePiece / kReduceBlock), and one to spare
  const Job<T>& job_;
  int64_t base_;
  int64_t width_;
  alignas(64) T centers_[kReduceColumns<T>];
  alignas(64) T levels_[kDepth][kReduceLanes * kReduceColumns<T>];
  alignas(64) T widened_[kReduceBlock][kReduceColumns<T>];
};

template <class T>
void reduce_columns(const Job<T>& job) {
  constexpr int64_t kSize = kReduceLanes * kReduceColumns<T>;
  const int64_t inner = job.space.kept.inner_size();
  Runs outer = job.space.kept;
  outer.pop();
  const int64_t strips = (inner + kReduceColumns<T> - 1) / kReduceColumns<T>;
  const int64_t count = job.count();
  const int64_t pieces = job.pieces();
  const int64_t all = outer.numel() * strips;
  const Tensor partial =
      pieces > 1 ? empty({all * pieces * kSize}, {.dtype = dtype_of<T>}) : Tensor();
  const auto finish = [&](int64_t strip, T* lanes) {
    job.fold_strip(lanes);
    const int64_t column = strip % strips * kReduceColumns<T>;
    job.store(strip / strips * inner + column, lanes, std::min(kReduceColumns<T>, inner - column));
  };
  const int64_t work = std::min(count, kReducePiece) * std::min(inner, kReduceColumns<T>);
  parallel_for(0, all * pieces, std::max<int64_t>(1, kGrain / work),
               [&](int64_t begin, int64_t end) {
                 alignas(64) T lanes[kSize];
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t strip = task / pieces;
                   const int64_t column = strip % strips * kReduceColumns<T>;
                   const int64_t output = strip / strips * inner + column;
                   const int64_t first = task % pieces * kReducePiece;
                   T* to = pieces > 1 ? partial.data<T>() + task * kSize : lanes;
                   Strip<T>(job, outer.offset(strip / strips) + column,
                            std::min(kReduceColumns<T>, inner - column),
                            job.centers ? job.centers + output : nullptr)
                       .fold(first, std::min(count, first + kReducePiece), to);
                   if (pieces == 1) finish(strip, lanes);
                 }
               });
  if (pieces == 1) return;
  parallel_for(0, all, 1, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      T* lanes = partial.data<T>() + strip * pieces * kSize;
      job.fold_pieces(lanes, kSize);
      finish(strip, lanes);
    }
  });
}

template <class T>
void run(const Tensor& x, const Space& space, const Reducer& reducer, const Tensor& centers,
         const Tensor& out) {
  const Job<T> job{x, space, reducer, centers.defined() ? centers.data<T>() : nullptr, out};
  const bool side_by_side =
      space.kept.inner_stride() == 1 && space.kept.inner_size() >= kMinColumns;
  const bool end_to_end = space.reduced.inner_stride() == 1 && space.reduced.inner_size() > 1;
  if (side_by_side && !end_to_end && job.count() > 0) return reduce_columns(job);
  reduce_rows(job);
}

}  // namespace

DimSet dim_set(const char* op, const Tensor& x, const Shape& dims) {
  if (dims.empty()) return (DimSet{1} << x.dims()) - 1;
  DimSet set = 0;
  for (const int64_t dim : dims) {
    const DimSet bit = DimSet{1} << wrap_dim(dim, x.dims(), op);
    WEFT_CHECK((set & bit) == 0, op, "expected each dim once, got ", dims, " for shape ",
               x.shape());
    set |= bit;
  }
  return set;
}

int64_t reduced_count(const Tensor& x, DimSet dims) {
  int64_t count = 1;
  for (int d = 0; d < x.dims(); ++d)
    count *= has_dim(dims, d) ? x.shape()[d] : 1;
  return count;
}

Tensor run_reduction(const Tensor& x, DimSet dims, DType compute, DType result,
                     const Reducer& reducer, const Tensor& centers) {
  const Space space = make_space(x, dims);
  const Tensor out = empty_strided(space.shape, space.strides, {result, x.device()});
  if (out.numel() == 0) return out;
  profile_work(x.numel(), x.bytes() + out.bytes());
  switch (compute) {
    case DType::f32:
      run<float>(x, space, reducer, centers, out);
      break;
    case DType::f64:
      run<double>(x, space, reducer, centers, out);
      break;
    default:
      run<int64_t>(x, space, reducer, centers, out);
      break;
  }
  return out;
}

Tensor drop_dims(const Tensor& x, DimSet dims, bool keepdim) {
  if (keepdim) return x;
  Shape shape;
  Strides strides;
  for (int d = 0; d < x.dims(); ++d) {
    if (has_dim(dims, d)) continue;
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return alias(x, shape, strides);
}

Tensor restore_dims(const Tensor& g, const Shape& x, DimSet dims) {
  if (g.dims() == x.dims()) return g;
  Shape shape = x;
  Strides strides = x;
  int at = 0;
  for (int d = 0; d < x.dims(); ++d) {
    const bool dropped = has_dim(dims, d);
    shape[d] = dropped ? 1 : x[d];
    strides[d] = dropped ? 0 : g.strides()[at];
    at += dropped ? 0 : 1;
  }
  return alias(g, shape, strides);
}

Tensor repeat_dims(const Tensor& g, const Shape& x, DimSet dims) {
  const Tensor thin = restore_dims(g, x, dims);
  Strides strides = thin.strides();
  for (int d = 0; d < x.dims(); ++d) {
    if (has_dim(dims, d)) strides[d] = 0;
  }
  return alias(thin, x, strides);
}

}  // namespace weft::detail
