#include "ops/view.h"

#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/parts.h"
#include "ops/reduce.h"

#include <algorithm>
#include <optional>

namespace weft {
namespace {

// A view of x; `undo` takes the gradient of the view to x's shape.
template <class Undo>
Tensor viewed(const char* name, const Tensor& x, const Shape& shape, const Strides& strides,
              int64_t offset, Undo undo) {
  Tensor out = alias(x, shape, strides, offset);
  if (recording(x)) {
    record(name, out, inputs(x), [undo](const Tensor& g, Gradients& to) { to.set(0, undo(g)); });
  }
  return out;
}

// The gradient of a part: g at its place among zeros.
Tensor part_of_zeros(const Tensor& g, const Shape& whole, int dim, int64_t start, int64_t step,
                     bool dropped) {
  const Tensor zero = zeros(whole, g.options());
  Shape shape = g.shape();
  Strides strides = zero.strides();
  if (dropped) {
    strides.erase(dim);
  } else {
    strides[dim] *= step;
  }
  if (g.numel() > 0) copy_(alias(zero, shape, strides, start * zero.strides()[dim]), g);
  return zero;
}

// Strides that show x's elements under `shape` without copying, if there are any: each new dim must
// lie inside a run of old dims that are contiguous among themselves.
std::optional<Strides> strides_for(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  Strides strides = Strides::filled(shape.dims(), 1);
  int next = shape.dims() - 1;
  int64_t run = 1;    // elements of the old run so far
  int64_t taken = 1;  // of which new dims have been given
  int64_t step = 0;   // stride of the run's innermost dim
  for (int d = x.dims() - 1; d >= 0; --d) {
    if (run == 1) step = x.strides()[d];
    run *= x.shape()[d];
    const bool ends = d == 0 || (x.shape()[d - 1] != 1 && x.strides()[d - 1] != run * step);
    if (!ends) continue;
    for (; next >= 0 && (taken < run || shape[next] == 1); --next) {
      strides[next] = taken * step;
      taken *= shape[next];
    }
    if (taken != run) return std::nullopt;
    run = taken = 1;
  }
  for (; next >= 0; --next) {
    if (shape[next] != 1) return std::nullopt;
  }
  return strides;
}

int checked_dim(const char* op, const Tensor& x, int64_t dim) {
  detail::check_defined(op, x);
  WEFT_CHECK(x.dims() > 0, op, "expected a tensor of at least one dim, got a scalar");
  return wrap_dim(dim, x.dims(), op);
}

// The gradient of a tensor from those of its parts, of which some may be undefined.
Tensor put_together(std::span<const Tensor> gradients, const Tensor& like,
                    const std::vector<int64_t>& sizes, int dim) {
  if (const Tensor whole = detail::side_by_side(gradients, dim); whole.defined()) return whole;
  const Tensor whole = like.is_dense() ? empty_like(like) : empty(like.shape(), like.options());
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Tensor part = narrow(whole, dim, start, sizes[i]);
    start += sizes[i];
    if (gradients[i].defined()) {
      copy_(part, gradients[i]);
    } else {
      zero_(part);
    }
  }
  return whole;
}

}  // namespace

namespace detail {

Tensor side_by_side(std::span<const Tensor> parts, int dim) {
  if (parts.empty() || !parts[0].defined()) return {};
  const Tensor& first = parts[0];
  Shape shape = first.shape();
  shape[dim] = 0;
  for (const Tensor& part : parts) {
    if (!part.defined() || part.storage() != first.storage() || part.dtype() != first.dtype() ||
        part.dims() != first.dims() || part.strides() != first.strides() ||
        part.raw() - first.raw() != shape[dim] * first.strides()[dim] * size_of(first.dtype()))
      return {};
    for (int d = 0; d < first.dims(); ++d) {
      if (d != dim && part.shape()[d] != first.shape()[d]) return {};
    }
    shape[dim] += part.shape()[dim];
  }
  const Tensor whole = alias(first, shape, first.strides());
  return whole.is_dense() ? whole : Tensor();
}

}  // namespace detail

Tensor reshape(const Tensor& x, const Shape& shape) {
  detail::check_defined("reshape", x);
  Shape sizes = shape;
  int unknown = -1;
  int64_t known = 1;
  bool overflow = false;
  for (int d = 0; d < shape.dims(); ++d) {
    WEFT_CHECK(shape[d] >= 0 || (shape[d] == -1 && unknown < 0), "reshape",
               "expected sizes of 0 or more and at most one -1, got ", shape);
    if (shape[d] == -1) {
      unknown = d;
    } else {
      overflow = overflow || __builtin_mul_overflow(known, shape[d], &known);
    }
  }
  if (unknown >= 0 && known > 0) sizes[unknown] = x.numel() / known;
  const bool fits = !overflow && (unknown >= 0 ? known > 0 && sizes[unknown] * known == x.numel()
                                               : known == x.numel());
  WEFT_CHECK(fits, "reshape", "expected a shape of ", x.numel(), " elements for ", x.shape(),
             ", got ", shape);
  if (sizes == x.shape()) return x;
  const std::optional<Strides> strides =
      x.numel() > 0 ? strides_for(x, sizes) : contiguous_strides(sizes);
  if (!strides) return reshape(contiguous(x), sizes);
  return viewed("reshape", x, sizes, *strides, 0,
                [from = x.shape()](const Tensor& g) { return reshape(g, from); });
}

Tensor flatten(const Tensor& x, int64_t from, int64_t to) {
  detail::check_defined("flatten", x);
  const int first = wrap_dim(from, x.dims(), "flatten");
  const int last = wrap_dim(to, x.dims(), "flatten");
  WEFT_CHECK(first <= last, "flatten", "expected a first dim before the last, got ", from, " and ",
             to, " for ", x.shape());
  if (x.dims() == 0) return reshape(x, {1});
  Shape shape;
  for (int d = 0; d < x.dims(); ++d) {
    if (d > first && d <= last) {
      shape[first] *= x.shape()[d];
    } else {
      shape.push_back(x.shape()[d]);
    }
  }
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, const Shape& dims) {
  detail::check_defined("permute", x);
  WEFT_CHECK(dims.dims() == x.dims(), "permute", "expected ", x.dims(), " dims for ", x.shape(),
             ", got ", dims);
  Shape shape = x.shape();
  Strides strides = x.strides();
  Shape inverse = Shape::filled(x.dims(), -1);
  for (int d = 0; d < x.dims(); ++d) {
    const int from = wrap_dim(dims[d], x.dims(), "permute");
    WEFT_CHECK(inverse[from] < 0, "permute", "expected each dim once, got ", dims);
    inverse[from] = d;
    shape[d] = x.shape()[from];
    strides[d] = x.strides()[from];
  }
  return viewed("permute", x, shape, strides, 0,
                [inverse](const Tensor& g) { return permute(g, inverse); });
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  detail::check_defined("transpose", x);
  const int first = wrap_dim(a, x.dims(), "transpose");
  const int second = wrap_dim(b, x.dims(), "transpose");
  Shape shape = x.shape();
  Strides strides = x.strides();
  if (x.dims() > 0) {
    std::swap(shape[first], shape[second]);
    std::swap(strides[first], strides[second]);
  }
  return viewed("transpose", x, shape, strides, 0,
                [first, second](const Tensor& g) { return transpose(g, first, second); });
}

Tensor slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end, int64_t step) {
  const int along = checked_dim("slice", x, dim);
  WEFT_CHECK(step >= 1, "slice", "expected a step of at least 1, got ", step);
  const int64_t size = x.shape()[along];
  const auto clamped = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t from = clamped(begin);
  const int64_t length = std::max<int64_t>(0, clamped(end) - from);
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[along] = length / step + (length % step != 0 ? 1 : 0);
  const int64_t offset = shape[along] > 0 ? from * strides[along] : 0;
  if (shape[along] > 1) strides[along] *= step;
  return viewed(
      "slice", x, shape, strides, offset, [whole = x.shape(), along, from, step](const Tensor& g) {
        return part_of_zeros(g, whole, along, from, g.shape()[along] > 1 ? step : 1, false);
      });
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const int along = checked_dim("select", x, dim);
  const int64_t size = x.shape()[along];
  WEFT_CHECK(index >= -size && index < size, "select", "expected an index in [", -size, ", ", size,
             ") for dim ", along, " of ", x.shape(), ", got ", index);
  const int64_t at = index < 0 ? index + size : index;
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(along);
  strides.erase(along);
  return viewed("select", x, shape, strides, at * x.strides()[along],
                [whole = x.shape(), along, at](const Tensor& g) {
                  return part_of_zeros(g, whole, along, at, 1, true);
                });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const int along = checked_dim("narrow", x, dim);
  const int64_t size = x.shape()[along];
  WEFT_CHECK(start >= 0 && length >= 0 && start <= size && length <= size - start, "narrow",
             "expected a part of [0, ", size, ") for dim ", along, " of ", x.shape(),
             ", got start ", start, " and length ", length);
  if (length == size) return x;
  return slice(x, along, start, start + length);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  detail::check_defined("expand", x);
  const int extra = shape.dims() - x.dims();
  WEFT_CHECK(extra >= 0, "expand", "expected at least ", x.dims(), " dims for ", x.shape(),
             ", got ", shape);
  Shape sizes = shape;
  Strides strides = Strides::filled(shape.dims(), 0);
  for (int d = 0; d < shape.dims(); ++d) {
    const bool is_new = d < extra;
    const int64_t own = is_new ? 1 : x.shape()[d - extra];
    if (sizes[d] == -1 && !is_new) sizes[d] = own;
    WEFT_CHECK(sizes[d] >= 0 && (own == 1 || own == sizes[d]), "expand", "expected sizes that ",
               x.shape(), " repeats to, got ", shape);
    if (!is_new && own == sizes[d]) strides[d] = x.strides()[d - extra];
  }
  checked_numel(sizes, size_of(x.dtype()), "expand");
  return viewed("expand", x, sizes, strides, 0,
                [from = x.shape()](const Tensor& g) { return sum_to(g, from); });
}

Tensor squeeze(const Tensor& x) {
  detail::check_defined("squeeze", x);
  Shape shape;
  Strides strides;
  for (int d = 0; d < x.dims(); ++d) {
    if (x.shape()[d] == 1) continue;
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return viewed("squeeze", x, shape, strides, 0,
                [from = x.shape()](const Tensor& g) { return reshape(g, from); });
}

Tensor squeeze(const Tensor& x, int64_t dim) {
  detail::check_defined("squeeze", x);
  const int along = wrap_dim(dim, x.dims(), "squeeze");
  if (x.dims() == 0 || x.shape()[along] != 1) return x;
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(along);
  strides.erase(along);
  return viewed("squeeze", x, shape, strides, 0,
                [along](const Tensor& g) { return unsqueeze(g, along); });
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  detail::check_defined("unsqueeze", x);
  const int along = wrap_dim(dim, x.dims() + 1, "unsqueeze");
  Shape shape = x.shape();
  Strides strides = x.strides();
  strides.insert(along, along < x.dims() ? shape[along] * strides[along] : 1);
  shape.insert(along, 1);
  return viewed("unsqueeze", x, shape, strides, 0,
                [along](const Tensor& g) { return squeeze(g, along); });
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const int along = checked_dim("split", x, dim);
  int64_t total = 0;
  for (const int64_t size : sizes) {
    WEFT_CHECK(size >= 0 && size <= x.shape()[along] - total, "split",
               "expected sizes that add up to ", x.shape()[along], " for dim ", along, " of ",
               x.shape(), ", got ", size, " after ", total);
    total += size;
  }
  WEFT_CHECK(total == x.shape()[along], "split", "expected sizes that add up to ", x.shape()[along],
             " for dim ", along, " of ", x.shape(), ", got ", total);
  if (sizes.size() == 1) return {x};
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    Shape shape = x.shape();
    shape[along] = size;
    parts.push_back(alias(x, shape, x.strides(), size > 0 ? start * x.strides()[along] : 0));
    start += size;
  }
  if (!parts.empty() && recording(x)) {
    record("split", parts, inputs(std::span(&x, 1)),
           [like = x.detach(), sizes, along](std::span<const Tensor> g, Gradients& to) {
             to.set(0, put_together(g, like, sizes, along));
           });
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const int along = checked_dim("split", x, dim);
  const int64_t whole = x.shape()[along];
  WEFT_CHECK(size > 0 || (size == 0 && whole == 0), "split",
             "expected a part size of at least 1, got ", size);
  std::vector<int64_t> sizes;
  for (int64_t start = 0; start < whole || sizes.empty(); start += size)
    sizes.push_back(std::min(size, whole - start));
  return split(x, sizes, along);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t dim) {
  const int along = checked_dim("chunk", x, dim);
  WEFT_CHECK(count >= 1, "chunk", "expected at least one part, got ", count);
  const int64_t whole = x.shape()[along];
  return split(
      x, std::max<int64_t>(whole == 0 ? 0 : 1, whole / count + (whole % count != 0 ? 1 : 0)), dim);
}

}  // namespace weft
