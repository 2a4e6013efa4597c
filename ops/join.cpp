#include "ops/join.h"

#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/elementwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weft {
namespace {

// The part [start, start + length) of a dim, as a view without history.
Tensor part(const Tensor& x, int dim, int64_t start, int64_t length) {
  Shape shape = x.shape();
  shape[dim] = length;
  return alias(x, shape, x.strides(), length > 0 ? start * x.strides()[dim] : 0);
}

// Copies without recording.
void write(const Tensor& target, const Tensor& source) {
  const NoGrad no_grad;
  copy_(target, source);
}

// An output laid out like `like`, if that is channels-last, with another shape.
Tensor output_like(const Tensor& like, const Shape& shape, DType dtype) {
  const Options options{dtype, like.device()};
  if (like.dims() == 4 && like.is_channels_last() && !like.is_contiguous()) {
    return empty_strided(shape, channels_last_strides(shape), options);
  }
  return empty(shape, options);
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  const ProfileOp profile("cat");
  WEFT_CHECK(!tensors.empty(), "cat", "expected at least one tensor, got none");
  for (const Tensor& tensor : tensors)
    detail::check_defined("cat", tensor);
  const Tensor& first = tensors[0];
  WEFT_CHECK(first.dims() > 0, "cat",
             "expected tensors of at least one dim, got a scalar; stack() adds a dim");
  const int along = wrap_dim(dim, first.dims(), "cat");
  Shape shape = first.shape();
  DType dtype = first.dtype();
  for (size_t i = 1; i < tensors.size(); ++i) {
    detail::check_same_device("cat", first, tensors[i]);
    Shape expected = first.shape();
    if (tensors[i].dims() == first.dims()) expected[along] = tensors[i].shape()[along];
    WEFT_CHECK(tensors[i].shape() == expected, "cat", "expected shapes that agree outside dim ",
               along, ", got ", first.shape(), " and ", tensors[i].shape());
    shape[along] += tensors[i].shape()[along];
    dtype = promote(dtype, tensors[i].dtype());
  }
  Tensor out = output_like(first, shape, dtype);
  int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t length = tensor.shape()[along];
    write(part(out, along, start, length), tensor);
    start += length;
  }
  if (recording(tensors)) {
    std::vector<std::pair<int64_t, DType>> parts;
    for (const Tensor& tensor : tensors)
      parts.emplace_back(tensor.shape()[along], tensor.dtype());
    record("cat", out, inputs(tensors),
           [along, parts = std::move(parts)](const Tensor& g, Gradients& grads) {
             int64_t from = 0;
             for (size_t i = 0; i < parts.size(); ++i) {
               const auto [length, part_dtype] = parts[i];
               // A copy: a leaf's gradient must not share memory with its neighbours'.
               if (grads.wants(i))
                 grads.set(i, to(clone(part(g, along, from, length)), part_dtype));
               from += length;
             }
           });
  }
  return out;
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  const ProfileOp profile("stack");
  WEFT_CHECK(!tensors.empty(), "stack", "expected at least one tensor, got none");
  for (const Tensor& tensor : tensors) {
    detail::check_defined("stack", tensor);
    detail::check_same_device("stack", tensors[0], tensor);
    WEFT_CHECK(tensor.shape() == tensors[0].shape(), "stack", "expected tensors of one shape, got ",
               tensors[0].shape(), " and ", tensor.shape());
  }
  const int along = wrap_dim(dim, tensors[0].dims() + 1, "stack");
  Shape shape = tensors[0].shape();
  shape.insert(along, static_cast<int64_t>(tensors.size()));
  DType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors)
    dtype = promote(dtype, tensor.dtype());
  Tensor out = empty(shape, {dtype, tensors[0].device()});
  // Slot i of the new dim, as a view in the shape of one tensor.
  const auto slot = [along](const Tensor& whole, size_t i) {
    Shape sizes = whole.shape();
    Strides strides = whole.strides();
    sizes.erase(along);
    strides.erase(along);
    return alias(whole, sizes, strides, static_cast<int64_t>(i) * whole.strides()[along]);
  };
  for (size_t i = 0; i < tensors.size(); ++i)
    write(slot(out, i), tensors[i]);
  if (recording(tensors)) {
    std::vector<DType> dtypes;
    for (const Tensor& tensor : tensors)
      dtypes.push_back(tensor.dtype());
    record("stack", out, inputs(tensors),
           [slot, dtypes = std::move(dtypes)](const Tensor& g, Gradients& grads) {
             for (size_t i = 0; i < dtypes.size(); ++i) {
               if (grads.wants(i)) grads.set(i, to(clone(slot(g, i)), dtypes[i]));
             }
           });
  }
  return out;
}

Tensor pad(const Tensor& x, std::span<const int64_t> widths, Scalar value) {
  const ProfileOp profile("pad");
  detail::check_defined("pad", x);
  const auto padded = static_cast<int>(widths.size() / 2);
  WEFT_CHECK(widths.size() % 2 == 0 && widths.size() <= 2 * static_cast<size_t>(x.dims()), "pad",
             "expected two widths for each padded dim of ", x.shape(), ", got ", widths.size(),
             " widths");
  Shape shape = x.shape();
  Shape kept = x.shape();  // the part of x that stays
  Shape source_start = Shape::filled(x.dims(), 0);
  Shape target_start = source_start;
  for (int i = 0; i < padded; ++i) {
    const int dim = x.dims() - 1 - i;
    const int64_t before = widths[static_cast<size_t>(2 * i)];
    const int64_t after = widths[static_cast<size_t>(2 * i + 1)];
    constexpr int64_t kWidest = int64_t{1} << 48;  // keeps the sums below from overflowing
    const auto is_sane = [](int64_t width) { return -kWidest < width && width < kWidest; };
    WEFT_CHECK(is_sane(before) && is_sane(after) && x.shape()[dim] + before + after >= 0, "pad",
               "expected a size of 0 or more in dim ", dim, ", got ", x.shape()[dim], " padded by ",
               before, " and ", after);
    shape[dim] += before + after;
    source_start[dim] = std::max<int64_t>(-before, 0);
    target_start[dim] = std::max<int64_t>(before, 0);
    kept[dim] =
        std::max<int64_t>(x.shape()[dim] - source_start[dim] - std::max<int64_t>(-after, 0), 0);
  }
  checked_numel(shape, size_of(x.dtype()), "pad");
  const auto inner = [kept](const Tensor& whole, const Shape& start) {
    int64_t offset = 0;
    for (int i = 0; i < whole.dims(); ++i)
      offset += start[i] * whole.strides()[i];
    return alias(whole, kept, whole.strides(), kept.numel() > 0 ? offset : 0);
  };
  Tensor out = output_like(x, shape, x.dtype());
  fill_(out, value);
  write(inner(out, target_start), inner(x, source_start));
  if (recording(x)) {
    record(
        "pad", out, inputs(x),
        [inner, source_start, target_start, whole = x.shape()](const Tensor& g, Gradients& grads) {
          const Tensor dx = output_like(g, whole, g.dtype());
          fill_(dx, 0.0);
          write(inner(dx, source_start), inner(g, target_start));
          grads.set(0, dx);
        });
  }
  return out;
}

}  // namespace weft
