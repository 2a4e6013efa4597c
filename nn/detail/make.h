// Memory for parameters and buffers, charged to `parameters` from the start.
#pragma once

#include "core/ledger.h"
#include "core/tensor.h"
#include "nn/detail/recipe.h"

namespace weft::nn::detail {

// Uninitialised; undefined if not wanted.
inline Tensor make_buffer(const Shape& shape, bool wanted = true, DType dtype = f32) {
  if (!wanted) return {};
  const CategoryScope scope(Category::parameters);
  return empty(shape, {.dtype = dtype});
}

// The same, and without memory within a Deferred scope.
inline Tensor make_parameter(const Shape& shape, bool wanted = true, DType dtype = f32) {
  if (wanted && deferring()) return deferred_tensor(shape, dtype);
  return make_buffer(shape, wanted, dtype);
}

}  // namespace weft::nn::detail
