// Batch and group normalisation. Their kernels are ours rather than oneDNN's: sums are taken in a
// fixed order (oneDNN's depends on the number of threads), any floating dtype works, and a pass
// runs at memory speed.
#include "autograd/record.h"
#include "ops/detail/channel_sums.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/images.h"
#include "ops/detail/norm_parameters.h"
#include "ops/norm.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using detail::as_type;
using detail::ChannelPair;
using detail::ChannelRows;

// x as NHWC memory [N, positions, C], whatever its dims: images stay as they are where they are
// channels-last.
Tensor as_images(const Tensor& x) {
  const NoGrad no_grad;
  if (x.dims() == 4) return channels_last(x);
  const Tensor rows = contiguous(x);
  const int64_t channels = x.size(1);
  const int64_t positions =
      channels > 0 ? x.numel() / std::max<int64_t>(1, x.size(0) * channels) : 0;
  const Shape shape{x.size(0), channels, 1, positions};
  return channels_last(alias(rows, shape, contiguous_strides(shape)));
}

// The way back: `images`, laid out as as_images gave it, in x's shape.
Tensor from_images(const Tensor& images, const Shape& shape) {
  if (shape.dims() == 4) return images;
  Strides strides = contiguous_strides(shape);
  const int64_t channels = std::max<int64_t>(shape[1], 1);
  for (int d = 2; d < shape.dims(); ++d)
    strides[d] *= channels;
  strides[1] = 1;
  return alias(images, shape, strides);
}

void check_channels(const char* op, const Tensor& x) {
  WEFT_CHECK(x.dims() >= 2 && x.dims() <= 5 && x.size(1) > 0, op,
             "expected an input [N, C] or [N, C, …] of at most 5 dims with at least one channel, "
             "got shape ",
             x.shape());
}

// Moves running statistics, if there are any, towards the batch's by `momentum`, in place.
void update_running(const Tensor& running, const std::vector<double>& batch, double momentum) {
  if (!running.defined()) return;
  const NoGrad no_grad;
  std::vector<double> values = running.to_vector<double>();
  for (size_t c = 0; c < values.size(); ++c)
    values[c] += momentum * (batch[c] - values[c]);
  copy_(running, from_values(values));
}

// What the backward of both needs of the forward.
template <class T>
struct Normalised {
  Tensor mean;               // T[segments, channels]
  std::vector<double> rstd;  // [segments * channels]
};

// y = (x - mean) * rstd * weight + bias, per segment and channel.
template <class T>
Tensor apply(const Tensor& images, const Normalised<T>& norm, const ChannelRows& shape,
             const Tensor& weight, const Tensor& bias) {
  const std::vector<double> weights = detail::parameter_values(weight, shape.channels, 1);
  const std::vector<double> biases = detail::parameter_values(bias, shape.channels, 0);
  std::vector<double> scale(norm.rstd.size());
  std::vector<double> shift(norm.rstd.size());
  for (size_t i = 0; i < scale.size(); ++i) {
    const size_t c = i % weights.size();
    scale[i] = norm.rstd[i] * weights[c];
    shift[i] = biases[c];
  }
  const Shape size{shape.segments, shape.channels};
  const Tensor out = empty_like(images);
  detail::channel_affine<T>(out, images, norm.mean, as_type<T>(scale, size),
                            as_type<T>(shift, size), shape);
  return out;
}

template <class T>
Tensor batch_norm_of(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var,
                     const BatchNormOptions& options) {
  const Tensor images = as_images(x);
  const ChannelRows shape{1, x.numel() / x.size(1), x.size(1)};
  const auto channels = static_cast<size_t>(shape.channels);
  const auto count = static_cast<double>(shape.rows);

  Normalised<T> norm;
  if (options.training) {
    const ChannelPair moments = detail::channel_moments<T>(images, shape);
    const double* deviations = moments.second.data<double>();
    std::vector<double> unbiased(channels);
    norm.rstd.resize(channels);
    for (size_t c = 0; c < channels; ++c) {
      norm.rstd[c] = 1 / std::sqrt(deviations[c] / count + options.eps);
      unbiased[c] = deviations[c] / (count - 1);
    }
    norm.mean = to(moments.first, dtype_of<T>);
    update_running(running_mean, moments.first.to_vector<double>(), options.momentum);
    update_running(running_var, unbiased, options.momentum);
  } else {
    norm.mean = as_type<T>(running_mean.to_vector<double>(), {1, shape.channels});
    norm.rstd = running_var.to_vector<double>();
    for (double& value : norm.rstd)
      value = 1 / std::sqrt(value + options.eps);
  }
  const Tensor out = from_images(apply(images, norm, shape, weight, bias), x.shape());
  if (!recording(x, weight, bias)) return out;

  record(op, out, inputs(x, weight, bias),
         [op, x = Saved(x), weight = Saved(weight), bias = Saved(bias), norm = std::move(norm),
          shape, training = options.training, count](const Tensor& g, Gradients& to) {
           const Tensor in = as_images(x.get(op));
           const Tensor gradient = as_images(g);
           const std::vector<double> weights =
               detail::parameter_values(weight.get(op), shape.channels, 1);
           ChannelPair sums;
           if (training || to.wants(1) || to.wants(2)) {
             sums = detail::channel_gradient_sums<T>(gradient, in, norm.mean, shape);
           }
           if (to.wants(0)) {
             std::vector<double> scale(weights.size());
             std::vector<double> slope(weights.size(), 0.0);
             std::vector<double> shift(weights.size(), 0.0);
             for (size_t c = 0; c < weights.size(); ++c) {
               scale[c] = weights[c] * norm.rstd[c];
               if (!training) continue;
               shift[c] = -scale[c] * sums.first.data<double>()[c] / count;
               slope[c] =
                   -scale[c] * norm.rstd[c] * norm.rstd[c] * sums.second.data<double>()[c] / count;
             }
             const Shape size{1, shape.channels};
             const Tensor dx = empty_like(in);
             if (training) {
               detail::channel_blend<T>(dx, gradient, in, norm.mean, as_type<T>(scale, size),
                                        as_type<T>(slope, size), as_type<T>(shift, size), shape);
             } else {
               const Tensor zero = as_type<T>(shift, size);
               detail::channel_affine<T>(dx, gradient, zero, as_type<T>(scale, size), zero, shape);
             }
             to.set(0, from_images(dx, x.get(op).shape()));
           }
           if (to.wants(1)) {
             std::vector<double> dw = sums.second.to_vector<double>();
             for (size_t c = 0; c < weights.size(); ++c)
               dw[c] *= norm.rstd[c];
             to.set(1, detail::parameter_gradient(dw, weight.get(op)));
           }
           if (to.wants(2))
             to.set(2, detail::parameter_gradient(sums.first.to_vector<double>(), bias.get(op)));
         });
  return out;
}

template <class T>
Tensor group_norm_of(const char* op, const Tensor& x, int64_t groups, const Tensor& weight,
                     const Tensor& bias, double eps) {
  const Tensor images = as_images(x);
  const int64_t channels = x.size(1);
  const ChannelRows shape{x.size(0), x.numel() / (x.size(0) * channels), channels};
  const int64_t per_group = channels / groups;
  const auto count = static_cast<double>(per_group * shape.rows);

  const ChannelPair moments = detail::channel_moments<T>(images, shape);
  std::vector<double> mean(static_cast<size_t>(moments.first.numel()));
  Normalised<T> norm;
  norm.rstd.resize(mean.size());
  for (int64_t first = 0; first < moments.first.numel();
       first += per_group) {  // every group of every sample
    const double* means = moments.first.data<double>() + first;
    const double* deviations = moments.second.data<double>() + first;
    double sum = 0;
    for (int64_t c = 0; c < per_group; ++c)
      sum += means[c];
    const double group_mean = sum / static_cast<double>(per_group);
    double deviation = 0;
    for (int64_t c = 0; c < per_group; ++c) {
      const double apart = means[c] - group_mean;
      deviation += deviations[c] + static_cast<double>(shape.rows) * apart * apart;
    }
    const double rstd = 1 / std::sqrt(deviation / count + eps);
    std::fill_n(mean.begin() + first, per_group, group_mean);
    std::fill_n(norm.rstd.begin() + first, per_group, rstd);
  }
  norm.mean = as_type<T>(mean, {shape.segments, channels});
  const Tensor out = from_images(apply(images, norm, shape, weight, bias), x.shape());
  if (!recording(x, weight, bias)) return out;

  record(
      op, out, inputs(x, weight, bias),
      [op, x = Saved(x), weight = Saved(weight), bias = Saved(bias), norm = std::move(norm), shape,
       per_group, count](const Tensor& g, Gradients& to) {
        const Tensor in = as_images(x.get(op));
        const Tensor gradient = as_images(g);
        const std::vector<double> weights =
            detail::parameter_values(weight.get(op), shape.channels, 1);
        const ChannelPair sums = detail::channel_gradient_sums<T>(gradient, in, norm.mean, shape);
        const double* sum_g = sums.first.data<double>();
        const double* sum_gx = sums.second.data<double>();
        const auto total = static_cast<int64_t>(norm.rstd.size());
        if (to.wants(0)) {
          std::vector<double> scale(norm.rstd.size());
          std::vector<double> slope(norm.rstd.size());
          std::vector<double> shift(norm.rstd.size());
          for (int64_t first = 0; first < total; first += per_group) {
            const auto at = static_cast<size_t>(first);
            const double* w = weights.data() + first % shape.channels;
            const double rstd = norm.rstd[at];
            double group_g = 0;
            double group_gx = 0;
            for (int64_t c = 0; c < per_group; ++c) {
              group_g += w[c] * sum_g[first + c];
              group_gx += w[c] * sum_gx[first + c];
              scale[at + static_cast<size_t>(c)] = w[c] * rstd;
            }
            std::fill_n(slope.begin() + first, per_group, -rstd * rstd * rstd * group_gx / count);
            std::fill_n(shift.begin() + first, per_group, -rstd * group_g / count);
          }
          const Shape size{shape.segments, shape.channels};
          const Tensor dx = empty_like(in);
          detail::channel_blend<T>(dx, gradient, in, norm.mean, as_type<T>(scale, size),
                                   as_type<T>(slope, size), as_type<T>(shift, size), shape);
          to.set(0, from_images(dx, x.get(op).shape()));
        }
        std::vector<double> dw(weights.size());
        std::vector<double> db(weights.size());
        for (int64_t i = 0; i < total; ++i) {
          const auto c = static_cast<size_t>(i % shape.channels);
          dw[c] += sum_gx[i] * norm.rstd[static_cast<size_t>(i)];
          db[c] += sum_g[i];
        }
        if (to.wants(1)) to.set(1, detail::parameter_gradient(dw, weight.get(op)));
        if (to.wants(2)) to.set(2, detail::parameter_gradient(db, bias.get(op)));
      });
  return out;
}

// The result for an input without elements: gradients are empty or zero.
Tensor empty_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor out = empty_like(x);
  if (recording(x, weight, bias)) {
    record(op, out, inputs(x, weight, bias), [x, weight, bias](const Tensor&, Gradients& to) {
      if (to.wants(0)) to.set(0, empty_like(x));
      const auto zeros = [](const Tensor& like) {
        return detail::parameter_gradient(std::vector<double>(static_cast<size_t>(like.numel())),
                                          like);
      };
      if (to.wants(1)) to.set(1, zeros(weight));
      if (to.wants(2)) to.set(2, zeros(bias));
    });
  }
  return out;
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options) {
  const char* op = "batch_norm";
  detail::check_norm(op, x, options.eps);
  check_channels(op, x);
  const Shape channels{x.size(1)};
  detail::check_norm_parameter(op, "a weight", weight, channels, x);
  detail::check_norm_parameter(op, "a bias", bias, channels, x);
  detail::check_norm_parameter(op, "a running mean", running_mean, channels, x);
  detail::check_norm_parameter(op, "a running variance", running_var, channels, x);
  WEFT_CHECK(options.momentum >= 0 && options.momentum <= 1, op,
             "expected a momentum in [0, 1], got ", options.momentum);
  WEFT_CHECK(options.training || (running_mean.defined() && running_var.defined()), op,
             "expected running statistics outside training, got none");
  WEFT_CHECK(!options.training || x.numel() != x.size(1), op,
             "expected more than one value per channel in training, got an input of shape ",
             x.shape());
  if (x.numel() == 0) return empty_norm(op, x, weight, bias);
  if (x.dtype() == f64)
    return batch_norm_of<double>(op, x, weight, bias, running_mean, running_var, options);
  return batch_norm_of<float>(op, x, weight, bias, running_mean, running_var, options);
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const char* op = "group_norm";
  detail::check_norm(op, x, eps);
  check_channels(op, x);
  const Shape channels{x.size(1)};
  detail::check_norm_parameter(op, "a weight", weight, channels, x);
  detail::check_norm_parameter(op, "a bias", bias, channels, x);
  WEFT_CHECK(groups > 0 && x.size(1) % groups == 0, op,
             "expected a number of groups that divides the ", x.size(1), " channels, got ", groups);
  if (x.numel() == 0) return empty_norm(op, x, weight, bias);
  if (x.dtype() == f64) return group_norm_of<double>(op, x, groups, weight, bias, eps);
  return group_norm_of<float>(op, x, groups, weight, bias, eps);
}

}  // namespace weft
