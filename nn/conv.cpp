#include "nn/conv.h"

#include "nn/detail/make.h"
#include "nn/init.h"

namespace weft::nn {
namespace {

// Channels of one group; checked here, where the layer is made, as well as by the operator.
int64_t per_group(const char* layer, const char* which, int64_t channels, int64_t groups) {
  WEFT_CHECK(groups >= 1 && channels % groups == 0, layer, "expected ", which,
             " channels that groups divide evenly, got ", channels, " and ", groups, " groups");
  return channels / groups;
}

Shape weight_shape(const char* layer, int64_t first, int64_t second, const Shape& kernel) {
  WEFT_CHECK(kernel.dims() == 2 && kernel[0] >= 1 && kernel[1] >= 1, layer,
             "expected a kernel of two sizes of at least 1, got ", kernel);
  return {first, second, kernel[0], kernel[1]};
}

}  // namespace

Conv2d::Conv2d(int64_t in, int64_t out, const Shape& kernel, const Conv2dOptions& options,
               bool with_bias)
    : options_(options) {
  per_group("conv2d", "output", out, options.groups);
  weight = detail::make_parameter(
      weight_shape("conv2d", out, per_group("conv2d", "input", in, options.groups), kernel));
  bias = detail::make_parameter({out}, with_bias);
  init::default_weight_and_bias_(weight, bias);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, weight, bias, options_);
}

ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, const Shape& kernel,
                                 const ConvTranspose2dOptions& options, bool with_bias)
    : options_(options) {
  per_group("conv_transpose2d", "input", in, options.groups);
  weight = detail::make_parameter(
      weight_shape("conv_transpose2d", in,
                   per_group("conv_transpose2d", "output", out, options.groups), kernel));
  bias = detail::make_parameter({out}, with_bias);
  init::default_weight_and_bias_(weight, bias);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor ConvTranspose2d::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias, options_);
}

}  // namespace weft::nn
