// Cross entropy and negative log-likelihood: one pass over the logits forward, one backward.
#include "core/parallel.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/row_math.h"
#include "ops/loss.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements

// Logits as rows of classes: [rows, classes], contiguous, in a compute dtype. The class dim of [N,
// C, d1, …] moves last.
struct Rows {
  Tensor values;
  int64_t rows = 1;
  int64_t classes = 1;
};

Shape classes_last(const Shape& sizes) {
  if (sizes.dims() <= 2) return sizes;
  Shape moved = sizes;
  moved.erase(1);
  moved.push_back(sizes[1]);
  return moved;
}

Rows rows_of(const Tensor& logits) {
  const Tensor moved = alias(logits, classes_last(logits.shape()), classes_last(logits.strides()));
  Rows rows{contiguous(to(moved, compute_dtype(logits.dtype()))), 1, moved.shape().back()};
  for (int d = 0; d + 1 < moved.dims(); ++d)
    rows.rows *= moved.shape()[d];
  return rows;
}

// The inverse for a gradient [rows, classes]: a view in the shape of `logits`, converted to its
// dtype.
Tensor shaped_like(const Tensor& gradient, const Shape& shape, DType dtype) {
  Strides strides = contiguous_strides(classes_last(shape));
  if (shape.dims() > 2) {
    const int64_t last = strides.back();
    strides.erase(shape.dims() - 1);
    strides.insert(1, last);
  }
  return to(alias(gradient, shape, strides), dtype);
}

// What the loss of a row is made of, beside the row itself.
struct Target {
  Tensor indices = {};        // i64 [rows], or
  Tensor probabilities = {};  // [rows, classes] in the compute dtype
  Tensor weights = {};        // [classes] in the compute dtype, or undefined
  int64_t ignore_index = 0;
  double smoothing = 0;
};

// All that backward reads may share the caller's memory: its versions are watched.
class Unchanged {
 public:
  Unchanged(const Rows& rows, const Target& target)
      : saved_{Saved(rows.values), Saved(target.indices), Saved(target.probabilities),
               Saved(target.weights)} {}
  void check(const char* op) const {
    for (const Saved& saved : saved_)
      saved.get(op);
  }

 private:
  std::array<Saved, 4> saved_;
};

void check_logits(const char* op, const Tensor& logits) {
  detail::check_defined(op, logits);
  WEFT_CHECK(is_floating(logits.dtype()) && logits.dims() >= 1, op,
             "expected floating logits [N, C, …], got ", logits.dtype(), " ", logits.shape());
  WEFT_CHECK(logits.shape()[logits.dims() > 1 ? 1 : 0] > 0, op,
             "expected at least one class, got logits ", logits.shape());
}

Tensor checked_weights(const char* op, const Tensor& weights, const Rows& rows) {
  if (!weights.defined()) return weights;
  WEFT_CHECK(weights.dims() == 1 && weights.numel() == rows.classes && is_floating(weights.dtype()),
             op, "expected floating class weights [", rows.classes, "], got ", weights.dtype(), " ",
             weights.shape());
  return contiguous(to(weights.detach(), rows.values.dtype()));
}

Tensor checked_indices(const char* op, const Tensor& logits, const Rows& rows, const Tensor& target,
                       int64_t ignore_index) {
  Shape expected = logits.shape();
  expected.erase(logits.dims() > 1 ? 1 : 0);
  WEFT_CHECK(target.shape() == expected, op, "expected class indices of shape ", expected,
             " for logits ", logits.shape(), ", got ", target.shape());
  WEFT_CHECK(target.dtype() == i64 || target.dtype() == i32, op,
             "expected class indices of i64 or i32, got ", target.dtype());
  Tensor indices = contiguous(to(target, i64));
  const int64_t* index = indices.data<int64_t>();
  for (int64_t i = 0; i < rows.rows; ++i) {
    WEFT_CHECK((index[i] >= 0 && index[i] < rows.classes) || index[i] == ignore_index, op,
               "expected class indices in [0, ", rows.classes, ") or ", ignore_index, ", got ",
               index[i], " for sample ", i);
  }
  return indices;
}

int64_t row_grain(int64_t classes) {
  return std::max<int64_t>(1, kGrain / classes);
}

template <class T>
struct RowLoss {
  const Rows& rows;
  const Target& target;

  T weight(int64_t c) const {
    return target.weights.defined() ? target.weights.data<T>()[c] : T(1);
  }
  T weight_sum() const {
    T sum = 0;
    for (int64_t c = 0; c < rows.classes; ++c)
      sum += weight(c);
    return sum;
  }
  bool counts(int64_t row) const {
    return !target.indices.defined() || target.indices.data<int64_t>()[row] != target.ignore_index;
  }
  // What the mean divides by.
  double divisor() const {
    if (!target.indices.defined()) return static_cast<double>(rows.rows);
    double sum = 0;
    for (int64_t row = 0; row < rows.rows; ++row) {
      if (counts(row)) sum += static_cast<double>(weight(target.indices.data<int64_t>()[row]));
    }
    return sum;
  }
  T smooth() const { return static_cast<T>(target.smoothing / static_cast<double>(rows.classes)); }
  // The target distribution times class weights: q_c. The loss is Σ q_c (lse - x_c), its gradient
  // Σq·softmax_c - q_c.
  T share(int64_t row, int64_t c) const {
    const auto keep = static_cast<T>(1 - target.smoothing);
    const T p = target.indices.defined() ? T(target.indices.data<int64_t>()[row] == c)
                                         : target.probabilities.data<T>()[row * rows.classes + c];
    return weight(c) * (keep * p + smooth());
  }
  // Without smoothing and probabilities only one class has a share.
  bool sparse() const { return target.indices.defined() && target.smoothing == 0; }

  void forward(T* losses, T* lse) const {
    const T* x = rows.values.data<T>();
    parallel_for(0, rows.rows, row_grain(rows.classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* at = x + row * rows.classes;
        lse[row] = detail::log_sum_exp(at, rows.classes);
        losses[row] = 0;
        if (!counts(row)) continue;
        if (sparse()) {
          const int64_t c = target.indices.data<int64_t>()[row];
          losses[row] = weight(c) * (lse[row] - at[c]);
          continue;
        }
        for (int64_t c = 0; c < rows.classes; ++c)
          losses[row] += share(row, c) * (lse[row] - at[c]);
      }
    });
  }

  // `scale` has an entry a row, or one for all.
  void backward(const T* lse, const T* scale, bool scale_per_row, T* dx) const {
    const T* x = rows.values.data<T>();
    const T all = target.indices.defined() && !sparse() ? weight_sum() * smooth() : T(0);
    parallel_for(0, rows.rows, row_grain(rows.classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* out = dx + row * rows.classes;
        if (!counts(row)) {
          std::fill_n(out, rows.classes, T(0));
          continue;
        }
        const T s = scale[scale_per_row ? row : 0];
        T total = all;
        if (target.indices.defined()) {
          total +=
              weight(target.indices.data<int64_t>()[row]) * static_cast<T>(1 - target.smoothing);
        } else {
          for (int64_t c = 0; c < rows.classes; ++c)
            total += share(row, c);
        }
        detail::exp_row(x + row * rows.classes, lse[row], s * total, out, rows.classes);
        if (sparse()) {
          const int64_t c = target.indices.data<int64_t>()[row];
          out[c] -= s * weight(c);
        } else {
          for (int64_t c = 0; c < rows.classes; ++c)
            out[c] -= s * share(row, c);
        }
      }
    });
  }

  // d loss / d probabilities: -w_c (1 - smoothing) log softmax_c.
  void backward_target(const T* lse, const T* scale, bool scale_per_row, T* dp) const {
    const T* x = rows.values.data<T>();
    for (int64_t row = 0; row < rows.rows; ++row) {
      const T s = scale[scale_per_row ? row : 0] * static_cast<T>(1 - target.smoothing);
      for (int64_t c = 0; c < rows.classes; ++c) {
        dp[row * rows.classes + c] = s * weight(c) * (lse[row] - x[row * rows.classes + c]);
      }
    }
  }
};

// The factor of each row's gradient: the incoming one, divided as the reduction divided.
template <class T>
Tensor row_scale(const Tensor& g, Reduction reduction, double divisor) {
  const Tensor scale = contiguous(to(g, dtype_of<T>));
  if (reduction != Reduction::mean) return scale;
  const Tensor divided = empty(scale.shape(), scale.options());
  *divided.data<T>() = static_cast<T>(static_cast<double>(*scale.data<T>()) / divisor);
  return divided;
}

// Row losses to the result: as they are in `shape`, or summed in order in f64.
template <class T>
Tensor reduced(const Tensor& losses, Reduction reduction, double divisor, const Shape& shape) {
  if (reduction == Reduction::none) return alias(losses, shape, contiguous_strides(shape));
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i)
    sum += static_cast<double>(losses.data<T>()[i]);
  const Tensor out = empty({}, losses.options());
  *out.data<T>() = static_cast<T>(reduction == Reduction::mean ? sum / divisor : sum);
  return out;
}

template <class T>
Tensor cross_entropy_of(const Tensor& logits, const Tensor& target_tensor, const Rows& rows,
                        const Target& target, Reduction reduction) {
  const RowLoss<T> loss{rows, target};
  const Tensor losses = empty({rows.rows}, rows.values.options());
  const Tensor lse = empty_like(losses);
  profile_work(4 * rows.values.numel(), rows.values.bytes());
  loss.forward(losses.data<T>(), lse.data<T>());
  const double divisor = loss.divisor();
  Shape shape = logits.shape();
  shape.erase(logits.dims() > 1 ? 1 : 0);
  Tensor out = reduced<T>(losses, reduction, divisor, shape);
  const Tensor& probabilities =
      target.probabilities.defined() ? target_tensor : target.probabilities;
  if (recording(logits, probabilities)) {
    record("cross_entropy", out, inputs(logits, probabilities),
           [unchanged = Unchanged(rows, target), rows, target, lse, reduction, divisor,
            shape = logits.shape(), dtype = logits.dtype(),
            target_dtype = target_tensor.dtype()](const Tensor& g, Gradients& to) {
             unchanged.check("cross_entropy");
             const RowLoss<T> again{rows, target};
             const Tensor scale = row_scale<T>(g, reduction, divisor);
             const bool per_row = reduction == Reduction::none;
             const Tensor d = empty(rows.values.shape(), rows.values.options());
             profile_work(4 * d.numel(), 2 * d.bytes());
             if (to.wants(0)) {
               again.backward(lse.data<T>(), scale.data<T>(), per_row, d.data<T>());
               to.set(0, shaped_like(d, shape, dtype));
             }
             if (to.wants(1)) {
               const Tensor dp = empty_like(d);
               again.backward_target(lse.data<T>(), scale.data<T>(), per_row, dp.data<T>());
               to.set(1, shaped_like(dp, shape, target_dtype));
             }
           });
  }
  return out;
}

template <class T>
Tensor nll_of(const Tensor& x, const Rows& rows, const Target& target, Reduction reduction) {
  const RowLoss<T> loss{rows, target};
  const Tensor losses = empty({rows.rows}, rows.values.options());
  const int64_t* index = target.indices.data<int64_t>();
  for (int64_t row = 0; row < rows.rows; ++row) {
    losses.data<T>()[row] =
        loss.counts(row)
            ? -loss.weight(index[row]) * rows.values.data<T>()[row * rows.classes + index[row]]
            : T(0);
  }
  const double divisor = loss.divisor();
  Shape shape = x.shape();
  shape.erase(x.dims() > 1 ? 1 : 0);
  Tensor out = reduced<T>(losses, reduction, divisor, shape);
  if (recording(x)) {
    record("nll_loss", out, inputs(x),
           [unchanged = Unchanged(rows, target), rows, target, reduction, divisor,
            shape = x.shape(), dtype = x.dtype()](const Tensor& g, Gradients& to) {
             unchanged.check("nll_loss");
             const RowLoss<T> again{rows, target};
             const Tensor scale = row_scale<T>(g, reduction, divisor);
             const bool per_row = reduction == Reduction::none;
             const Tensor d = empty(rows.values.shape(), rows.values.options());
             std::fill_n(d.data<T>(), d.numel(), T(0));
             for (int64_t row = 0; row < rows.rows; ++row) {
               if (!again.counts(row)) continue;
               const int64_t c = target.indices.data<int64_t>()[row];
               d.data<T>()[row * rows.classes + c] =
                   -again.weight(c) * scale.data<T>()[per_row ? row : 0];
             }
             to.set(0, shaped_like(d, shape, dtype));
           });
  }
  return out;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options) {
  const ProfileOp profile("cross_entropy");
  check_logits("cross_entropy", logits);
  detail::check_defined("cross_entropy", target);
  detail::check_same_device("cross_entropy", logits, target);
  WEFT_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, "cross_entropy",
             "expected a label smoothing in [0, 1], got ", options.label_smoothing);
  const Rows rows = rows_of(logits.detach());
  Target parts{.weights = checked_weights("cross_entropy", options.class_weights, rows),
               .ignore_index = options.ignore_index,
               .smoothing = options.label_smoothing};
  if (is_floating(target.dtype())) {
    WEFT_CHECK(target.shape() == logits.shape(), "cross_entropy",
               "expected class probabilities of shape ", logits.shape(), ", got ", target.shape());
    parts.probabilities = to(rows_of(target.detach()).values, rows.values.dtype());
  } else {
    parts.indices = checked_indices("cross_entropy", logits, rows, target, options.ignore_index);
  }
  return rows.values.dtype() == f64
             ? cross_entropy_of<double>(logits, target, rows, parts, options.reduction)
             : cross_entropy_of<float>(logits, target, rows, parts, options.reduction);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NllOptions& options) {
  const ProfileOp profile("nll_loss");
  check_logits("nll_loss", log_probabilities);
  detail::check_defined("nll_loss", target);
  const Rows rows = rows_of(log_probabilities.detach());
  const Target parts{
      .indices = checked_indices("nll_loss", log_probabilities, rows, target, options.ignore_index),
      .weights = checked_weights("nll_loss", options.class_weights, rows),
      .ignore_index = options.ignore_index};
  return rows.values.dtype() == f64
             ? nll_of<double>(log_probabilities, rows, parts, options.reduction)
             : nll_of<float>(log_probabilities, rows, parts, options.reduction);
}

}  // namespace weft
