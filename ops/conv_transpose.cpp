// A transposed convolution is the backward-data computation of the convolution that leads from its
// output to its input; its own gradients are that convolution's forward and backward-weights.
#include "ops/conv_transpose.h"

#include "autograd/record.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/conv.h"
#include "ops/detail/conv_arguments.h"
#include "ops/detail/images.h"
#include "ops/reduce.h"

#include <algorithm>

namespace weft {
namespace {

using detail::ConvShape;

// The underlying convolution: its images are our output, its output is x.
ConvShape checked_shape(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  detail::check_conv_operands(op, x, weight, bias);
  detail::check_conv_pair(op, "a stride", options.stride, 1);
  detail::check_conv_pair(op, "a padding", options.padding, 0);
  detail::check_conv_pair(op, "an output padding", options.output_padding, 0);
  detail::check_conv_pair(op, "a dilation", options.dilation, 1);
  const int64_t groups = options.groups;
  WEFT_CHECK(groups >= 1 && x.size(1) % groups == 0 && weight.size(0) == x.size(1), op,
             "expected a weight [C, O / groups, kh, kw] for images of C channels, a multiple of "
             "groups, got images ",
             x.shape(), ", weight ", weight.shape(), ", groups ", groups);
  int64_t outputs = 0;
  WEFT_CHECK(!__builtin_mul_overflow(weight.size(1), groups, &outputs), op,
             "expected fewer outputs, got weight ", weight.shape(), ", groups ", groups);
  detail::check_conv_bias(op, bias, outputs, weight);
  ConvShape shape{.images = x.size(0), .channels = outputs, .outputs = x.size(1), .groups = groups};
  for (int i = 0; i < 2; ++i) {
    const auto axis = static_cast<size_t>(i);
    shape.out[axis] = x.shape()[2 + i];
    shape.kernel[axis] = weight.shape()[2 + i];
    shape.stride[axis] = options.stride[i];
    shape.padding[axis] = options.padding[i];
    shape.dilation[axis] = options.dilation[i];
    WEFT_CHECK(options.output_padding[i] < std::max(options.stride[i], options.dilation[i]), op,
               "expected an output padding below stride or dilation, got output padding ",
               options.output_padding, ", stride ", options.stride, ", dilation ",
               options.dilation);
    int64_t steps = 0;
    int64_t reach = 0;
    int64_t size = 0;
    const bool overflow =
        __builtin_mul_overflow(shape.out[axis] - 1, shape.stride[axis], &steps) ||
        __builtin_mul_overflow(shape.kernel[axis] - 1, shape.dilation[axis], &reach) ||
        __builtin_add_overflow(steps, reach, &size) ||
        __builtin_add_overflow(size, options.output_padding[i] + 1 - 2 * shape.padding[axis],
                               &size);
    WEFT_CHECK(!overflow && size > 0, op, "expected options that give a positive size, got images ",
               x.shape(), ", weight ", weight.shape(), ", stride ", options.stride, ", padding ",
               options.padding, ", output padding ", options.output_padding, ", dilation ",
               options.dilation);
    shape.in[axis] = size;
  }
  checked_numel(shape.in_shape(), size_of(x.dtype()), op);
  return shape;
}

}  // namespace

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  const ProfileOp profile("conv_transpose2d");
  const char* op = "conv_transpose2d";
  const ConvShape shape = checked_shape(op, x, weight, bias, options);
  const DType compute = detail::conv_compute_dtype(x.dtype());
  const Tensor y = detail::empty_images(shape.in_shape(), compute);
  if (shape.images > 0) {
    detail::conv_backward_data(shape, detail::images(x, compute),
                               detail::conv_parameter(weight, compute),
                               detail::conv_bias(bias, compute), y);
  }
  const Tensor out = detail::images(y, x.dtype());
  if (!recording(x, weight, bias)) return out;

  record(op, out, inputs(x, weight, bias),
         [op, shape, compute, x = Saved(x), weight = Saved(weight), bias = Saved(bias)](
             const Tensor& g, Gradients& to) {
           const Tensor& in = x.get(op);
           const Tensor& w = weight.get(op);
           const DType dtype = in.dtype();
           if (shape.images == 0) {
             if (to.wants(0)) to.set(0, empty_like(in));
             if (to.wants(1)) to.set(1, detail::conv_zeros(w));
             if (to.wants(2)) to.set(2, detail::conv_zeros(bias.get(op)));
             return;
           }
           const Tensor gradient = detail::images(g, compute);
           if (to.wants(0)) {
             const Tensor dx = detail::empty_images(shape.out_shape(), compute);
             detail::conv_forward(shape, gradient, detail::conv_parameter(w, compute), {}, dx);
             to.set(0, weft::to(dx, dtype));
           }
           if (to.wants(1)) {
             const Tensor dw = empty_like(w, compute);
             detail::conv_backward_weights(shape, gradient, detail::images(in, compute), dw, {});
             to.set(1, weft::to(dw, dtype));
           }
           if (to.wants(2)) {
             const Tensor db = sum_to(gradient, {1, shape.channels, 1, 1});
             to.set(2, weft::to(alias(db, {shape.channels}, {1}), dtype));
           }
         });
  return out;
}

}  // namespace weft
