#include "ops/detail/conv_arguments.h"

#include "autograd/grad_mode.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/onednn.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace weft::detail {

void check_conv_pair(const char* op, const char* name, const Shape& value, int64_t least) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  WEFT_CHECK(value.dims() == 2 && std::min(value[0], value[1]) >= least &&
                 std::max(value[0], value[1]) <= most,
             op, "expected ", name, " of two numbers (height, width) of at least ", least, ", got ",
             value);
}

void check_conv_operands(const char* op, const Tensor& x, const Tensor& weight,
                         const Tensor& bias) {
  check_defined(op, x);
  check_defined(op, weight);
  WEFT_CHECK(x.dims() == 4 && weight.dims() == 4, op,
             "expected images and a weight of 4 dims, got shapes ", x.shape(), " and ",
             weight.shape());
  const Shape& size = x.shape();
  WEFT_CHECK(std::min({size[1], size[2], size[3]}) > 0 && weight.numel() > 0, op,
             "expected images with channels and pixels and a weight that is not empty, got shapes ",
             size, " and ", weight.shape());
  WEFT_CHECK(is_floating(x.dtype()), op, "expected a floating dtype, got ", x.dtype());
  WEFT_CHECK(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype()), op,
             "expected images, weight and bias of one dtype, got ", x.dtype(), ", ", weight.dtype(),
             " and ", bias.defined() ? bias.dtype() : x.dtype());
  check_same_device(op, x, weight);
}

void check_conv_bias(const char* op, const Tensor& bias, int64_t outputs, const Tensor& weight) {
  WEFT_CHECK(!bias.defined() || bias.shape() == Shape{outputs}, op, "expected a bias of shape ",
             Shape{outputs}, " for a weight of shape ", weight.shape(), ", got ", bias.shape());
}

DType conv_compute_dtype(DType dtype) {
  if (dtype == f64 || onednn::supports(dtype)) return dtype;
  return f32;
}

Tensor conv_parameter(const Tensor& parameter, DType dtype) {
  const NoGrad no_grad;
  return to(parameter, dtype);
}

Tensor conv_bias(const Tensor& bias, DType dtype) {
  if (!bias.defined()) return {};
  const NoGrad no_grad;
  return to(contiguous(bias), dtype);
}

Tensor conv_zeros(const Tensor& like) {
  Tensor zeros = empty_like(like);
  std::memset(zeros.raw(), 0, static_cast<size_t>(zeros.bytes()));
  return zeros;
}

}  // namespace weft::detail
