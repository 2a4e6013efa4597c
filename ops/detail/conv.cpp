#include "ops/detail/conv.h"

#include "core/profiler.h"
#include "ops/detail/conv_ways.h"
#include "ops/detail/onednn.h"
#include "ops/detail/packet_value.h"

#include <algorithm>

namespace weft::detail {
namespace {

bool winograd_fits(const ConvShape& shape) {
  const std::array<int64_t, 2> ones{1, 1};
  return shape.groups == 1 && shape.kernel == std::array<int64_t, 2>{3, 3} &&
         shape.stride == ones && shape.dilation == ones &&
         shape.channels % functors::kLanes<float> == 0 &&
         shape.outputs % functors::kLanes<float> == 0;
}

// Every one of the three computations has the forward's products.
void profile_conv(const ConvShape& shape, DType dtype) {
  if (!current_profiler()) return;
  const int64_t outputs = shape.out_shape().numel();
  const int64_t weights = shape.weight_shape().numel();
  profile_work(2 * outputs * (weights / shape.outputs),
               size_of(dtype) * (shape.in_shape().numel() + weights + outputs));
}

// Windows of one pixel are a matrix product as they are.
bool is_product(const ConvShape& shape) {
  return shape.groups == 1 && shape.kernel == std::array<int64_t, 2>{1, 1} &&
         shape.padding == std::array<int64_t, 2>{0, 0};
}

// Whether oneDNN's kernels use registers of 64 bytes. Ours do where the library was built for them.
bool wide_registers() {
  return onednn::supports(bf16);
}

// Winograd's transforms cost more than the products they save where there are few channels.
bool winograd_pays(const ConvShape& shape) {
  constexpr int64_t kFewest = functors::kPacketBytes == 64 ? 32 : 16;
  return winograd_fits(shape) && std::min(shape.channels, shape.outputs) >= kFewest &&
         std::max(shape.channels, shape.outputs) >= 32;
}

// Large products of small images, which oneDNN does not share out well.
bool is_product_of_few(const ConvShape& shape) {
  return is_product(shape) && shape.out[0] * shape.out[1] <= 64 &&
         shape.channels * shape.outputs >= int64_t{512} * 1024;
}

// Of strided products oneDNN sets all pixels' gradients to zero before it adds some.
ConvWay best_for_data(const ConvShape& shape, DType dtype) {
  const ConvWay best = conv_best(shape, dtype);
  const bool strided = shape.stride[0] * shape.stride[1] > 1;
  return dtype == f32 && functors::kPacketBytes == 64 && best == ConvWay::onednn && strided &&
                 is_product(shape)
             ? ConvWay::gemm
             : best;
}

// As measured by tests/bench/conv_ways. Up to AVX2 our kernels are faster than oneDNN's; beyond it
// where they save multiplications or share the work out better.
ConvWay best_for_weights(const ConvShape& shape, DType dtype) {
  const ConvWay best = conv_best(shape, dtype);
  const int64_t pixels = shape.images * shape.out[0] * shape.out[1];
  const int64_t weights = shape.channels * shape.outputs;
  if (dtype == f32 && wide_registers()) {
    if (functors::kPacketBytes < 64) return best;
    if (best == ConvWay::winograd) {
      const bool pays = weights <= int64_t{256} * 256 && pixels * weights >= int64_t{1} << 23;
      return pays ? best : ConvWay::onednn;
    }
    if (is_product(shape) && pixels < 1024 && weights >= int64_t{512} * 1024) return ConvWay::gemm;
    // Of a few channels oneDNN leaves most of a register empty.
    const bool window = shape.groups == 1 && shape.kernel[0] * shape.kernel[1] >= 25;
    return window && shape.channels < 8 && shape.outputs >= 32 ? ConvWay::direct : best;
  }
  // The sum over pixels goes through products of matrices, one a tap, where those are large enough
  // to pay for gathering the tap's pixels, and no other way is better.
  const bool large = shape.groups == 1 && std::min(shape.channels, shape.outputs) >= 256;
  return best == ConvWay::direct && large ? ConvWay::gemm : best;
}

ConvWay resolve(ConvWay way, const ConvShape& shape, DType dtype) {
  if (way == ConvWay::best) return conv_best(shape, dtype);
  WEFT_CHECK(conv_can(way, shape, dtype), "conv", "expected a way that can compute images ",
             shape.in_shape(), " with a weight ", shape.weight_shape(), " in ", dtype, ", got way ",
             static_cast<int>(way));
  return way;
}

}  // namespace

bool conv_can(ConvWay way, const ConvShape& shape, DType dtype) {
  switch (way) {
    case ConvWay::best:
      return true;
    case ConvWay::direct:
      return dtype == f32 || dtype == f64;
    case ConvWay::gemm:
      return (dtype == f32 || dtype == f64) && shape.groups == 1;
    case ConvWay::winograd:
      return dtype == f32 && winograd_fits(shape);
    case ConvWay::depthwise:
      return (dtype == f32 || dtype == f64) && shape.depthwise();
    case ConvWay::onednn:
      return onednn::supports(dtype);
  }
  return false;
}

ConvWay conv_best(const ConvShape& shape, DType dtype) {
  if (dtype != f32 && dtype != f64) return ConvWay::onednn;
  if (dtype == f32 && wide_registers()) {
    if (functors::kPacketBytes < 64) return ConvWay::onednn;
    if (winograd_pays(shape)) return ConvWay::winograd;
    return is_product_of_few(shape) ? ConvWay::gemm : ConvWay::onednn;
  }
  if (shape.depthwise()) return ConvWay::depthwise;
  if (dtype == f32 && winograd_pays(shape)) return ConvWay::winograd;
  if (is_product(shape)) return ConvWay::gemm;
  return ConvWay::direct;
}

namespace conv {

void forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
             const Tensor& y, ConvWay way) {
  const bool wide = x.dtype() == f64;
  switch (resolve(way, shape, x.dtype())) {
    case ConvWay::gemm:
      return (wide ? gemm_forward<double> : gemm_forward<float>)(shape, x, weight, bias, y);
    case ConvWay::winograd:
      return winograd_forward(shape, x, weight, bias, y);
    case ConvWay::onednn:
      return onednn_forward(shape, x, weight, bias, y);
    case ConvWay::depthwise:
      return (wide ? depthwise_forward<double> : depthwise_forward<float>)(shape, x, weight, bias,
                                                                           y);
    default:
      return (wide ? direct_forward<double> : direct_forward<float>)(shape, x, weight, bias, y);
  }
}

void backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                   const Tensor& bias, const Tensor& dx, ConvWay way) {
  const bool wide = g.dtype() == f64;
  if (way == ConvWay::best) way = best_for_data(shape, g.dtype());
  switch (resolve(way, shape, g.dtype())) {
    case ConvWay::gemm:
      return (wide ? gemm_backward_data<double> : gemm_backward_data<float>)(shape, g, weight, bias,
                                                                             dx);
    case ConvWay::winograd:
      return winograd_backward_data(shape, g, weight, bias, dx);
    case ConvWay::onednn:
      return onednn_backward_data(shape, g, weight, bias, dx);
    case ConvWay::depthwise:
      return (wide ? depthwise_backward_data<double>
                   : depthwise_backward_data<float>)(shape, g, weight, bias, dx);
    default:
      return (wide ? direct_backward_data<double> : direct_backward_data<float>)(shape, g, weight,
                                                                                 bias, dx);
  }
}

void backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g, const Tensor& dw,
                      const Tensor& db, ConvWay way) {
  const bool wide = x.dtype() == f64;
  if (way == ConvWay::best) way = best_for_weights(shape, x.dtype());
  switch (resolve(way, shape, x.dtype())) {
    case ConvWay::gemm:
      return (wide ? gemm_backward_weights<double> : gemm_backward_weights<float>)(shape, x, g, dw,
                                                                                   db);
    case ConvWay::winograd:
      return winograd_backward_weights(shape, x, g, dw, db);
    case ConvWay::onednn:
      return onednn_backward_weights(shape, x, g, dw, db);
    case ConvWay::depthwise:
      return (wide ? depthwise_backward_weights<double>
                   : depthwise_backward_weights<float>)(shape, x, g, dw, db);
    default:
      return (wide ? direct_backward_weights<double> : direct_backward_weights<float>)(shape, x, g,
                                                                                       dw, db);
  }
}

}  // namespace conv

void conv_forward(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& y, ConvWay way) {
  profile_conv(shape, x.dtype());
  conv::forward(shape, x, weight, bias, y, way);
}

void conv_backward_data(const ConvShape& shape, const Tensor& g, const Tensor& weight,
                        const Tensor& bias, const Tensor& dx, ConvWay way) {
  profile_conv(shape, g.dtype());
  conv::backward_data(shape, g, weight, bias, dx, way);
}

void conv_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& g,
                           const Tensor& dw, const Tensor& db, ConvWay way) {
  const bool narrow = size_of(x.dtype()) == 2;
  if (way == ConvWay::best && narrow && is_product(shape))
    return conv::narrow_product_weights(shape, x, g, dw, db);  // the product counts as its own work
  profile_conv(shape, x.dtype());
  conv::backward_weights(shape, x, g, dw, db, way);
}

}  // namespace weft::detail
