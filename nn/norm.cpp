#include "nn/norm.h"

#include "autograd/recompute.h"
#include "nn/detail/make.h"
#include "nn/init.h"
#include "ops/norm.h"

namespace weft::nn {
namespace {

Tensor constant(const Shape& shape, double value, bool wanted) {
  const Tensor tensor = detail::make_parameter(shape, wanted);
  if (wanted) init::constant_(tensor, value);
  return tensor;
}

Tensor constant_buffer(const Shape& shape, double value, bool wanted, DType dtype = f32) {
  const Tensor tensor = detail::make_buffer(shape, wanted, dtype);
  if (wanted) init::constant_(tensor, value);
  return tensor;
}

}  // namespace

BatchNorm::BatchNorm(int64_t channels, const BatchNormLayerOptions& options)
    : weight(constant({channels}, 1, options.affine)),
      bias(constant({channels}, 0, options.affine)),
      running_mean(constant_buffer({channels}, 0, options.track_running_stats)),
      running_var(constant_buffer({channels}, 1, options.track_running_stats)),
      num_batches_tracked(constant_buffer({}, 0, options.track_running_stats, i64)),
      options_(options) {
  add_parameter("weight", weight);
  add_parameter("bias", bias);
  add_buffer("running_mean", running_mean);
  add_buffer("running_var", running_var);
  add_buffer("num_batches_tracked", num_batches_tracked);
}

Tensor BatchNorm::normalise(const Tensor& x, bool relu, const Tensor& residual) {
  const BatchNormOptions how{.training = training() || !running_mean.defined(),
                             .momentum = options_.momentum,
                             .eps = options_.eps};
  // A batch that is gone through again in backward has been counted.
  const bool counted = training() && recomputing();
  const Tensor mean = counted ? Tensor() : running_mean;
  const Tensor var = counted ? Tensor() : running_var;
  Tensor out = relu ? batch_norm_relu(x, weight, bias, mean, var, how, residual)
                    : batch_norm(x, weight, bias, mean, var, how);
  if (training() && !counted && num_batches_tracked.defined()) {
    ++*num_batches_tracked.data<int64_t>();
    num_batches_tracked.bump_version();
  }
  return out;
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  WEFT_CHECK(x.dims() == 2 || x.dims() == 3, "batch_norm1d", "expected [N, C] or [N, C, L], got ",
             x.shape());
  return normalise(x);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  WEFT_CHECK(x.dims() == 4, "batch_norm2d", "expected [N, C, H, W], got ", x.shape());
  return normalise(x);
}

Tensor BatchNorm2d::then_relu(const Tensor& x, const Tensor& residual) {
  return with_hooks(x, [&](const Tensor& input) {
    WEFT_CHECK(input.dims() == 4, "batch_norm2d", "expected [N, C, H, W], got ", input.shape());
    return normalise(input, true, residual);
  });
}

LayerNorm::LayerNorm(const Shape& normalized, double eps, bool affine)
    : weight(constant(normalized, 1, affine)),
      bias(constant(normalized, 0, affine)),
      normalized_(normalized),
      eps_(eps) {
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_, weight, bias, eps_);
}

RmsNorm::RmsNorm(const Shape& normalized, double eps, bool affine)
    : weight(constant(normalized, 1, affine)), normalized_(normalized), eps_(eps) {
  add_parameter("weight", weight);
}

Tensor RmsNorm::forward(const Tensor& x) {
  return rms_norm(x, normalized_, weight, eps_);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps, bool affine)
    : weight(constant({channels}, 1, affine)),
      bias(constant({channels}, 0, affine)),
      groups_(groups),
      eps_(eps) {
  WEFT_CHECK(groups >= 1 && channels % groups == 0, "group_norm",
             "expected channels that groups divide evenly, got ", channels, " and ", groups,
             " groups");
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, groups_, weight, bias, eps_);
}

}  // namespace weft::nn
