// What the normalisations share: their checks and how they read and write per-channel values.
#pragma once

#include "autograd/engine.h"
#include "ops/copy.h"

#include <vector>

namespace weft::detail {

inline void check_norm(const char* op, const Tensor& x, double eps) {
  WEFT_CHECK(x.defined(), op, "expected a tensor, got an undefined one");
  WEFT_CHECK(is_floating(x.dtype()), op, "expected a floating dtype, got ", x.dtype());
  WEFT_CHECK(eps >= 0, op, "expected eps of 0 or more, got ", eps);
}

inline void check_norm_parameter(const char* op, const char* name, const Tensor& parameter,
                                 const Shape& shape, const Tensor& x) {
  if (!parameter.defined()) return;
  WEFT_CHECK(parameter.shape() == shape, op, "expected ", name, " of shape ", shape,
             " for an input of shape ", x.shape(), ", got ", parameter.shape());
  WEFT_CHECK(is_floating(parameter.dtype()), op, "expected a floating dtype of ", name, ", got ",
             parameter.dtype());
}

// The values of a parameter, or `count` times `missing` if there is none.
inline std::vector<double> parameter_values(const Tensor& parameter, int64_t count,
                                            double missing) {
  if (!parameter.defined()) return std::vector<double>(static_cast<size_t>(count), missing);
  return parameter.to_vector<double>();
}

// values as T[shape].
template <class T>
Tensor as_type(const std::vector<double>& values, const Shape& shape) {
  return to(from_values(values, shape), dtype_of<T>);
}

// The gradient of a parameter: in its layout and dtype.
inline Tensor parameter_gradient(const std::vector<double>& values, const Tensor& parameter) {
  return copy_in_layout_of(parameter,
                           to(from_values(values, parameter.shape()), parameter.dtype()));
}

}  // namespace weft::detail
