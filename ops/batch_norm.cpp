// Batch normalisation, alone and with what follows it in a residual network: relu(y + residual).
// Both are the same passes. Forward reads x for the statistics, then x and the residual for the
// result; of the ReLU a bit an element is kept. Backward reads the gradient and x for the two sums,
// then both for dx and the residual's gradient.
//
// The kernels are ours rather than oneDNN's: sums are taken in a fixed order (oneDNN's depends on
// the number of threads), any floating dtype works, and nothing on CPU has an add-ReLU form.
#include "core/profiler.h"
#include "ops/detail/channel_images.h"
#include "ops/detail/channel_sums.h"
#include "ops/norm.h"

#include <cmath>

namespace weft {
namespace {

using detail::channel_images;
using detail::channel_values;
using detail::ChannelPair;
using detail::ChannelRows;
using detail::from_channel_images;

// Which of the two operators, and what of it is the same in forward and backward.
struct Form {
  const char* op;
  bool relu = false;
  bool training = false;
};

// Moves running statistics, if there are any, towards the batch's by `momentum`, in place.
void update_running(const Tensor& running, const std::vector<double>& batch, double momentum) {
  if (!running.defined()) return;
  const NoGrad no_grad;
  std::vector<double> values = running.to_vector<double>();
  for (size_t c = 0; c < values.size(); ++c)
    values[c] += momentum * (batch[c] - values[c]);
  copy_(running, from_values(values));
}

struct Statistics {
  Tensor mean;               // [1, channels] of the compute dtype
  std::vector<double> rstd;  // 1 / sqrt(var + eps)
};

// The batch's, by which the running ones move.
Statistics batch_statistics(const Tensor& images, const ChannelRows& shape, DType compute,
                            const Tensor& running_mean, const Tensor& running_var,
                            const BatchNormOptions& options) {
  const ChannelPair moments = detail::channel_moments(images, shape);
  const double* deviations = moments.second.data<double>();
  const auto count = static_cast<double>(shape.rows);
  std::vector<double> rstd(static_cast<size_t>(shape.channels));
  std::vector<double> unbiased(rstd.size());
  for (size_t c = 0; c < rstd.size(); ++c) {
    rstd[c] = 1 / std::sqrt(deviations[c] / count + options.eps);
    unbiased[c] = deviations[c] / (count - 1);
  }
  update_running(running_mean, moments.first.to_vector<double>(), options.momentum);
  update_running(running_var, unbiased, options.momentum);
  return {to(moments.first, compute), std::move(rstd)};
}

Statistics running_statistics(const ChannelRows& shape, DType compute, const Tensor& running_mean,
                              const Tensor& running_var, double eps) {
  std::vector<double> rstd = running_var.to_vector<double>();
  for (double& value : rstd)
    value = 1 / std::sqrt(value + eps);
  return {channel_values(running_mean.to_vector<double>(), shape, compute), std::move(rstd)};
}

// dx and the residual's gradient, where they are wanted; `sums` are channel_gradient_sums.
void input_gradients(const Form& form, const Tensor& x, const Tensor& g, const Tensor& dead,
                     const std::vector<double>& weights, const Statistics& statistics,
                     const ChannelPair& sums, const ChannelRows& shape, Gradients& to) {
  const Tensor dresidual = to.wants(3) ? empty_like(g) : Tensor();
  const DType compute = statistics.mean.dtype();
  std::vector<double> scale(weights.size());
  for (size_t c = 0; c < scale.size(); ++c)
    scale[c] = weights[c] * statistics.rstd[c];
  if (to.wants(0)) {
    const Tensor in = channel_images(x);
    const Tensor dx = empty_like(in);
    if (form.training) {
      const auto count = static_cast<double>(shape.rows);
      std::vector<double> slope(scale.size());
      std::vector<double> shift(scale.size());
      for (size_t c = 0; c < scale.size(); ++c) {
        const double rstd = statistics.rstd[c];
        shift[c] = -scale[c] * sums.first.data<double>()[c] / count;
        slope[c] = -scale[c] * rstd * rstd * sums.second.data<double>()[c] / count;
      }
      detail::channel_blend(dx, dresidual, g, dead, in,
                            {.mean = statistics.mean,
                             .scale = channel_values(scale, shape, compute),
                             .slope = channel_values(slope, shape, compute),
                             .shift = channel_values(shift, shape, compute)},
                            shape);
    } else {
      detail::channel_gate(dx, g, dead, channel_values(scale, shape, compute), shape);
    }
    to.set(0, from_channel_images(dx, x.shape()));
  }
  if (!to.wants(3)) return;
  if (!to.wants(0) || !form.training) detail::channel_gate(dresidual, g, dead, {}, shape);
  to.set(3, from_channel_images(dresidual, x.shape()));
}

Tensor normalised(const Form& form, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options, const Tensor& residual) {
  const Tensor images = channel_images(x);
  const DType compute = compute_dtype(x.dtype());
  const ChannelRows shape{1, x.numel() / x.size(1), x.size(1)};
  Statistics statistics =
      form.training ? batch_statistics(images, shape, compute, running_mean, running_var, options)
                    : running_statistics(shape, compute, running_mean, running_var, options.eps);
  detail::Affine affine =
      detail::channel_norm(statistics.mean, statistics.rstd, weight, bias, shape);
  if (residual.defined()) affine.residual = channel_images(residual);
  affine.relu = form.relu;
  const bool is_recording = recording(x, weight, bias, residual);
  const Tensor dead = is_recording && form.relu ? detail::channel_bits(x.dtype(), shape) : Tensor();
  const Tensor y = empty_like(images);
  detail::channel_affine(y, dead, images, affine, shape);
  const Tensor out = from_channel_images(y, x.shape());
  if (!is_recording) return out;

  const auto backward = [form, x = Saved(x), weight = Saved(weight), bias = Saved(bias), dead,
                         shape,
                         statistics = std::move(statistics)](const Tensor& g, Gradients& to) {
    const Tensor gradient = channel_images(g);
    const std::vector<double> weights =
        detail::parameter_values(weight.get(form.op), shape.channels, 1);
    ChannelPair sums;
    if ((form.training && to.wants(0)) || to.wants(1) || to.wants(2)) {
      sums = detail::channel_gradient_sums(gradient, dead, channel_images(x.get(form.op)),
                                           statistics.mean, shape);
    }
    if (to.wants(0) || to.wants(3)) {
      input_gradients(form, x.get(form.op), gradient, dead, weights, statistics, sums, shape, to);
    }
    if (to.wants(1)) {
      std::vector<double> dw = sums.second.to_vector<double>();
      for (size_t c = 0; c < dw.size(); ++c)
        dw[c] *= statistics.rstd[c];
      to.set(1, detail::parameter_gradient(dw, weight.get(form.op)));
    }
    if (to.wants(2)) {
      to.set(2, detail::parameter_gradient(sums.first.to_vector<double>(), bias.get(form.op)));
    }
  };
  const std::array<Edge, 4> edges = inputs(x, weight, bias, residual);
  // The result can be made again from x by one pass, unless that needs a residual, too.
  if (residual.defined()) {
    record(form.op, out, edges, backward);
  } else {
    record_rebuilding(form.op, out, edges, backward,
                      [op = form.op, x = Saved(x), affine = std::move(affine), shape] {
                        const Tensor in = channel_images(x.get(op));
                        const Tensor again = empty_like(in);
                        detail::channel_affine(again, {}, in, affine, shape);
                        return from_channel_images(again, x.get(op).shape());
                      });
  }
  return out;
}

// The result for an input without elements: gradients are empty or zero.
Tensor empty_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& residual) {
  const Tensor out = empty_like(x);
  if (!recording(x, weight, bias, residual)) return out;
  record(op, out, inputs(x, weight, bias, residual),
         [x, weight, bias](const Tensor&, Gradients& to) {
           if (to.wants(0)) to.set(0, empty_like(x));
           if (to.wants(1)) to.set(1, detail::no_parameter_gradient(weight));
           if (to.wants(2)) to.set(2, detail::no_parameter_gradient(bias));
           if (to.wants(3)) to.set(3, empty_like(x));
         });
  return out;
}

Tensor checked(const char* op, bool relu, const Tensor& x, const Tensor& weight, const Tensor& bias,
               const Tensor& running_mean, const Tensor& running_var,
               const BatchNormOptions& options, const Tensor& residual) {
  detail::check_norm(op, x, options.eps);
  detail::check_channels(op, x);
  const Shape channels{x.size(1)};
  detail::check_norm_parameter(op, "a weight", weight, channels, x);
  detail::check_norm_parameter(op, "a bias", bias, channels, x);
  detail::check_norm_parameter(op, "a running mean", running_mean, channels, x);
  detail::check_norm_parameter(op, "a running variance", running_var, channels, x);
  WEFT_CHECK(
      !residual.defined() || (residual.shape() == x.shape() && residual.dtype() == x.dtype()), op,
      "expected a residual of the input's shape and dtype, ", x.shape(), " and ", x.dtype(),
      ", got ", residual.shape(), " and ", residual.dtype());
  WEFT_CHECK(options.momentum >= 0 && options.momentum <= 1, op,
             "expected a momentum in [0, 1], got ", options.momentum);
  WEFT_CHECK(options.training || (running_mean.defined() && running_var.defined()), op,
             "expected running statistics outside training, got none");
  WEFT_CHECK(!options.training || x.numel() != x.size(1), op,
             "expected more than one value per channel in training, got an input of shape ",
             x.shape());
  if (x.numel() == 0) return empty_norm(op, x, weight, bias, residual);
  return normalised({.op = op, .relu = relu, .training = options.training}, x, weight, bias,
                    running_mean, running_var, options, residual);
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options) {
  const ProfileOp profile("batch_norm");
  return checked("batch_norm", false, x, weight, bias, running_mean, running_var, options, {});
}

Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormOptions& options, const Tensor& residual) {
  const ProfileOp profile("batch_norm_relu");
  return checked("batch_norm_relu", true, x, weight, bias, running_mean, running_var, options,
                 residual);
}

}  // namespace weft
