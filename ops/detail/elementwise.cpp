#include "ops/detail/elementwise.h"

#include "ops/copy.h"
#include "ops/reduce.h"

namespace weft::detail {

void check_defined(const char* op, const Tensor& tensor) {
  WEFT_CHECK(tensor.defined(), op, "expected a tensor, got an undefined one");
}

void check_floating(const char* op, const Tensor& tensor) {
  check_defined(op, tensor);
  WEFT_CHECK(is_floating(tensor.dtype()), op, "expected a floating dtype, got ", tensor.dtype());
}

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  WEFT_CHECK(a.device() == b.device(), op, "expected tensors on one device, got ", a.device(),
             " and ", b.device());
}

void check_result(const char* op, const Tensor& target, const Shape& shape, DType dtype) {
  WEFT_CHECK(target.shape() == shape && target.dtype() == dtype, op, "expected a target of shape ",
             shape, " and dtype ", dtype, ", got ", target.shape(), " and ", target.dtype());
}

Tensor to_input(Tensor gradient, const Shape& shape, DType dtype) {
  if (gradient.shape() != shape) gradient = sum_to(gradient, shape);
  return to(gradient, dtype);
}

Tensor scalar_operand(const Scalar& scalar, DType result) {
  const DType compute = compute_dtype(result);
  const Tensor operand = empty({}, {.dtype = compute});
  switch (compute) {
    case DType::f32:
      *operand.data<float>() = static_cast<float>(scalar.to_double());
      break;
    case DType::f64:
      *operand.data<double>() = scalar.to_double();
      break;
    default:
      *operand.data<int64_t>() = scalar.to_int();
      break;
  }
  return operand;
}

}  // namespace weft::detail
