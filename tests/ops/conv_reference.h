// Convolution by its definition, in f64: seven loops, nothing else.
#pragma once

#include "ops/conv.h"
#include "ops/detail/conv_shape.h"
#include "tests/support/tensors.h"

namespace weft::test {

inline detail::ConvShape conv_shape(const Shape& x, const Shape& weight,
                                    const Conv2dOptions& options) {
  detail::ConvShape shape{
      .images = x[0], .channels = x[1], .outputs = weight[0], .groups = options.groups};
  for (int i = 0; i < 2; ++i) {
    const auto axis = static_cast<size_t>(i);
    shape.in[axis] = x[2 + i];
    shape.kernel[axis] = weight[2 + i];
    shape.stride[axis] = options.stride[i];
    shape.padding[axis] = options.padding[i];
    shape.dilation[axis] = options.dilation[i];
    const int64_t reach = options.dilation[i] * (weight[2 + i] - 1);
    shape.out[axis] = (x[2 + i] + 2 * options.padding[i] - reach - 1) / options.stride[i] + 1;
  }
  return shape;
}

// Calls visit(index in x, in weight, in y) for every product of the sum, indices being row-major.
template <class F>
void for_products(const detail::ConvShape& s, F visit) {
  const int64_t per_group = s.group_channels();
  for (int64_t n = 0; n < s.images; ++n) {
    for (int64_t o = 0; o < s.outputs; ++o) {
      const int64_t first = o / s.group_outputs() * per_group;
      for (int64_t oh = 0; oh < s.out[0]; ++oh) {
        for (int64_t ow = 0; ow < s.out[1]; ++ow) {
          for (int64_t c = 0; c < per_group; ++c) {
            for (int64_t kh = 0; kh < s.kernel[0]; ++kh) {
              for (int64_t kw = 0; kw < s.kernel[1]; ++kw) {
                const int64_t h = oh * s.stride[0] - s.padding[0] + kh * s.dilation[0];
                const int64_t w = ow * s.stride[1] - s.padding[1] + kw * s.dilation[1];
                if (h < 0 || h >= s.in[0] || w < 0 || w >= s.in[1]) continue;
                visit(((n * s.channels + first + c) * s.in[0] + h) * s.in[1] + w,
                      ((o * per_group + c) * s.kernel[0] + kh) * s.kernel[1] + kw,
                      ((n * s.outputs + o) * s.out[0] + oh) * s.out[1] + ow);
              }
            }
          }
        }
      }
    }
  }
}

struct ConvReference {
  Tensor y, dx, dw, db;  // f64, row-major
};

// y and, at the gradient g of y, what flows back. bias may be undefined.
inline ConvReference reference_conv(const detail::ConvShape& s, const Tensor& x,
                                    const Tensor& weight, const Tensor& bias, const Tensor& g) {
  const auto xs = x.to_vector<double>();
  const auto ws = weight.to_vector<double>();
  const auto gs = g.to_vector<double>();
  std::vector<double> y(static_cast<size_t>(s.out_shape().numel()));
  std::vector<double> dx(xs.size());
  std::vector<double> dw(ws.size());
  std::vector<double> db(static_cast<size_t>(s.outputs));
  const int64_t pixels = s.out[0] * s.out[1];
  const auto bias_values =
      bias.defined() ? bias.to_vector<double>() : std::vector<double>(db.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const auto o = i / static_cast<size_t>(pixels) % db.size();
    y[i] = bias_values[o];
    db[o] += gs[i];
  }
  for_products(s, [&](int64_t xi, int64_t wi, int64_t yi) {
    const auto a = static_cast<size_t>(xi);
    const auto b = static_cast<size_t>(wi);
    const auto c = static_cast<size_t>(yi);
    y[c] += xs[a] * ws[b];
    dx[a] += gs[c] * ws[b];
    dw[b] += gs[c] * xs[a];
  });
  return {from_values(y, s.out_shape()), from_values(dx, x.shape()),
          from_values(dw, weight.shape()), from_values(db)};
}

}  // namespace weft::test
