// Group normalisation, by the passes of batch normalisation with statistics for each sample.
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

Tensor group_norm_of(const char* op, const Tensor& x, int64_t groups, const Tensor& weight,
                     const Tensor& bias, double eps) {
  const Tensor images = channel_images(x);
  const int64_t channels = x.size(1);
  const DType compute = compute_dtype(x.dtype());
  const ChannelRows shape{x.size(0), x.numel() / (x.size(0) * channels), channels};
  const int64_t per_group = channels / groups;
  const auto count = static_cast<double>(per_group * shape.rows);

  const ChannelPair moments = detail::channel_moments(images, shape);
  std::vector<double> means(static_cast<size_t>(moments.first.numel()));
  std::vector<double> rstd(means.size());
  for (int64_t first = 0; first < moments.first.numel();
       first += per_group) {  // every group of every sample
    const double* mean = moments.first.data<double>() + first;
    const double* deviations = moments.second.data<double>() + first;
    double sum = 0;
    for (int64_t c = 0; c < per_group; ++c)
      sum += mean[c];
    const double group_mean = sum / static_cast<double>(per_group);
    double deviation = 0;
    for (int64_t c = 0; c < per_group; ++c) {
      const double apart = mean[c] - group_mean;
      deviation += deviations[c] + static_cast<double>(shape.rows) * apart * apart;
    }
    std::fill_n(means.begin() + first, per_group, group_mean);
    std::fill_n(rstd.begin() + first, per_group, 1 / std::sqrt(deviation / count + eps));
  }
  const Tensor mean = channel_values(means, shape, compute);
  const Tensor y = empty_like(images);
  detail::channel_affine(y, {}, images, detail::channel_norm(mean, rstd, weight, bias, shape),
                         shape);
  const Tensor out = from_channel_images(y, x.shape());
  if (!recording(x, weight, bias)) return out;

  record(
      op, out, inputs(x, weight, bias),
      [op, x = Saved(x), weight = Saved(weight), bias = Saved(bias), mean, rstd = std::move(rstd),
       shape, compute, per_group, count](const Tensor& g, Gradients& to) {
        const Tensor in = channel_images(x.get(op));
        const Tensor gradient = channel_images(g);
        const std::vector<double> weights =
            detail::parameter_values(weight.get(op), shape.channels, 1);
        const ChannelPair sums = detail::channel_gradient_sums(gradient, {}, in, mean, shape);
        const double* sum_g = sums.first.data<double>();
        const double* sum_gx = sums.second.data<double>();
        const auto total = static_cast<int64_t>(rstd.size());
        if (to.wants(0)) {
          std::vector<double> scale(rstd.size());
          std::vector<double> slope(rstd.size());
          std::vector<double> shift(rstd.size());
          for (int64_t first = 0; first < total; first += per_group) {
            const auto at = static_cast<size_t>(first);
            const double* w = weights.data() + first % shape.channels;
            const double r = rstd[at];
            double group_g = 0;
            double group_gx = 0;
            for (int64_t c = 0; c < per_group; ++c) {
              group_g += w[c] * sum_g[first + c];
              group_gx += w[c] * sum_gx[first + c];
              scale[at + static_cast<size_t>(c)] = w[c] * r;
            }
            std::fill_n(slope.begin() + first, per_group, -r * r * r * group_gx / count);
            std::fill_n(shift.begin() + first, per_group, -r * group_g / count);
          }
          const Tensor dx = empty_like(in);
          detail::channel_blend(dx, {}, gradient, {}, in,
                                {.mean = mean,
                                 .scale = channel_values(scale, shape, compute),
                                 .slope = channel_values(slope, shape, compute),
                                 .shift = channel_values(shift, shape, compute)},
                                shape);
          to.set(0, from_channel_images(dx, x.get(op).shape()));
        }
        std::vector<double> dw(weights.size());
        std::vector<double> db(weights.size());
        for (int64_t i = 0; i < total; ++i) {
          const auto c = static_cast<size_t>(i % shape.channels);
          dw[c] += sum_gx[i] * rstd[static_cast<size_t>(i)];
          db[c] += sum_g[i];
        }
        if (to.wants(1)) to.set(1, detail::parameter_gradient(dw, weight.get(op)));
        if (to.wants(2)) to.set(2, detail::parameter_gradient(db, bias.get(op)));
      });
  return out;
}

// The result for an input without elements: gradients are empty or zero.
Tensor empty_group_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor out = empty_like(x);
  if (!recording(x, weight, bias)) return out;
  record(op, out, inputs(x, weight, bias), [x, weight, bias](const Tensor&, Gradients& to) {
    if (to.wants(0)) to.set(0, empty_like(x));
    if (to.wants(1)) to.set(1, detail::no_parameter_gradient(weight));
    if (to.wants(2)) to.set(2, detail::no_parameter_gradient(bias));
  });
  return out;
}

}  // namespace

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const ProfileOp profile("group_norm");
  const char* op = "group_norm";
  detail::check_norm(op, x, eps);
  detail::check_channels(op, x);
  const Shape channels{x.size(1)};
  detail::check_norm_parameter(op, "a weight", weight, channels, x);
  detail::check_norm_parameter(op, "a bias", bias, channels, x);
  WEFT_CHECK(groups > 0 && x.size(1) % groups == 0, op,
             "expected a number of groups that divides the ", x.size(1), " channels, got ", groups);
  if (x.numel() == 0) return empty_group_norm(op, x, weight, bias);
  return group_norm_of(op, x, groups, weight, bias, eps);
}

}  // namespace weft
