#include "ops/conv.h"

#include "autograd/record.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/conv.h"
#include "ops/detail/conv_arguments.h"
#include "ops/detail/images.h"
#include "ops/reduce.h"

namespace weft {
namespace {

using detail::ConvShape;

ConvShape checked_shape(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Conv2dOptions& options) {
  detail::check_conv_operands(op, x, weight, bias);
  detail::check_conv_pair(op, "a stride", options.stride, 1);
  detail::check_conv_pair(op, "a padding", options.padding, 0);
  detail::check_conv_pair(op, "a dilation", options.dilation, 1);
  const int64_t groups = options.groups;
  WEFT_CHECK(groups >= 1 && x.size(1) % groups == 0 && weight.size(0) % groups == 0 &&
                 weight.size(1) == x.size(1) / groups,
             op,
             "expected a weight [O, C / groups, kh, kw] whose O and the images' C are multiples of "
             "groups, got images ",
             x.shape(), ", weight ", weight.shape(), ", groups ", groups);
  detail::check_conv_bias(op, bias, weight.size(0), weight);
  ConvShape shape{
      .images = x.size(0), .channels = x.size(1), .outputs = weight.size(0), .groups = groups};
  for (int i = 0; i < 2; ++i) {
    const auto axis = static_cast<size_t>(i);
    shape.in[axis] = x.shape()[2 + i];
    shape.kernel[axis] = weight.shape()[2 + i];
    shape.stride[axis] = options.stride[i];
    shape.padding[axis] = options.padding[i];
    shape.dilation[axis] = options.dilation[i];
    int64_t reach = 0;  // of one window, less one
    const bool fits =
        !__builtin_mul_overflow(shape.dilation[axis], shape.kernel[axis] - 1, &reach) &&
        shape.in[axis] + 2 * shape.padding[axis] > reach;
    WEFT_CHECK(fits, op, "expected a window that fits into the padded images, got images ",
               x.shape(), ", weight ", weight.shape(), ", padding ", options.padding, ", dilation ",
               options.dilation);
    shape.out[axis] =
        (shape.in[axis] + 2 * shape.padding[axis] - reach - 1) / shape.stride[axis] + 1;
  }
  checked_numel(shape.out_shape(), size_of(x.dtype()), op);
  return shape;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options) {
  const ProfileOp profile("conv2d");
  const char* op = "conv2d";
  const ConvShape shape = checked_shape(op, x, weight, bias, options);
  const DType compute = detail::conv_compute_dtype(x.dtype());
  const Tensor y = detail::empty_images(shape.out_shape(), compute);
  if (shape.images > 0) {
    detail::conv_forward(shape, detail::images(x, compute), detail::conv_parameter(weight, compute),
                         detail::conv_bias(bias, compute), y);
  }
  const Tensor out = detail::images(y, x.dtype());
  if (!recording(x, weight, bias)) return out;

  // Only what the wanted gradients need is kept.
  record(op, out, inputs(x, weight, bias),
         [op, shape, compute, dtype = x.dtype(),
          x = SavedOrRebuilt(weight.requires_grad() ? x : Tensor()), weight = Saved(weight),
          bias = Saved(bias)](const Tensor& g, Gradients& to) {
           const Tensor& w = weight.get(op);
           if (shape.images == 0) {
             if (to.wants(0)) to.set(0, detail::empty_images(shape.in_shape(), dtype));
             if (to.wants(1)) to.set(1, detail::conv_zeros(w));
             if (to.wants(2)) to.set(2, detail::conv_zeros(bias.get(op)));
             return;
           }
           const Tensor gradient = detail::images(g, compute);
           if (to.wants(0)) {
             const Tensor dx = detail::empty_images(shape.in_shape(), compute);
             detail::conv_backward_data(shape, gradient, detail::conv_parameter(w, compute), {},
                                        dx);
             to.set(0, weft::to(dx, dtype));
           }
           Tensor db = to.wants(2) ? empty({shape.outputs}, {.dtype = compute}) : Tensor();
           if (to.wants(1)) {
             const Tensor dw = empty_like(w, compute);
             detail::conv_backward_weights(shape, detail::images(x.get(op), compute), gradient, dw,
                                           db);
             to.set(1, weft::to(dw, dtype));
           } else if (to.wants(2)) {
             db = sum(gradient, {0, 2, 3});
           }
           if (to.wants(2)) to.set(2, weft::to(db, dtype));
         });
  return out;
}

}  // namespace weft
