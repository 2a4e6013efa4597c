// How a deferred parameter comes to its values.
#pragma once

#include "core/function.h"
#include "core/tensor.h"

namespace weft::nn::detail {

// Whether this thread is within a Deferred scope.
bool deferring();
// A tensor without memory.
Tensor deferred_tensor(const Shape& shape, DType dtype);
// Notes what fills it. What was noted before would be overwritten: it is forgotten.
void defer_values(const Tensor& deferred, Function<void(const Tensor&)> fill);
// Notes a conversion, which the tensor undergoes at once.
void defer_conversion(const Tensor& deferred, DType dtype);

}  // namespace weft::nn::detail
