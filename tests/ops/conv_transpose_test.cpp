#include "ops/conv_transpose.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "conv_reference.h"
#include "ops/copy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::normal;
using Inputs = std::vector<Tensor>;

struct ConvTransposeCase {
  const char* name;
  Shape x, weight;
  ConvTranspose2dOptions options;
};

const std::vector<ConvTransposeCase>& transpose_cases() {
  static const std::vector<ConvTransposeCase> list{
      {"plain", {2, 3, 4, 5}, {3, 4, 3, 3}, {}},
      {"doubles the size", {2, 16, 5, 4}, {16, 8, 2, 2}, {.stride = {2, 2}}},
      {"output padding",
       {2, 8, 5, 4},
       {8, 9, 3, 3},
       {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}}},
      {"dilation", {1, 4, 4, 5}, {4, 5, 3, 2}, {.padding = {1, 2}, .dilation = {2, 3}}},
      {"groups", {2, 6, 4, 4}, {6, 3, 3, 3}, {.stride = {2, 1}, .padding = {1, 1}, .groups = 3}},
      {"depthwise",
       {2, 10, 5, 5},
       {10, 1, 3, 3},
       {.stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}, .groups = 10}},
      {"three by three", {2, 32, 6, 7}, {32, 16, 3, 3}, {.padding = {1, 1}}},
      {"gaps between windows",
       {1, 2, 3, 3},
       {2, 3, 1, 1},
       {.stride = {3, 3}, .output_padding = {2, 1}}},
      {"no images", {0, 2, 3, 3}, {2, 3, 3, 3}, {}},
  };
  return list;
}

// Scatters every x into y: the definition.
Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const ConvTranspose2dOptions& o, const Shape& out) {
  const auto xs = x.to_vector<double>();
  const auto ws = weight.to_vector<double>();
  const auto bs = bias.to_vector<double>();
  const int64_t per_group = weight.size(1);
  const int64_t inputs = x.size(1) / o.groups;
  std::vector<double> y(static_cast<size_t>(out.numel()));
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = bs[i / static_cast<size_t>(out[2] * out[3]) % bs.size()];
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t w = i % x.size(3);
    const int64_t h = i / x.size(3) % x.size(2);
    const int64_t c = i / (x.size(3) * x.size(2)) % x.size(1);
    const int64_t n = i / (x.size(3) * x.size(2) * x.size(1));
    for (int64_t k = 0; k < per_group * weight.size(2) * weight.size(3); ++k) {
      const int64_t kw = k % weight.size(3);
      const int64_t kh = k / weight.size(3) % weight.size(2);
      const int64_t channel = c / inputs * per_group + k / (weight.size(3) * weight.size(2));
      const int64_t to_h = h * o.stride[0] - o.padding[0] + kh * o.dilation[0];
      const int64_t to_w = w * o.stride[1] - o.padding[1] + kw * o.dilation[1];
      if (to_h < 0 || to_h >= out[2] || to_w < 0 || to_w >= out[3]) continue;
      const int64_t at = ((n * out[1] + channel) * out[2] + to_h) * out[3] + to_w;
      y[static_cast<size_t>(at)] +=
          xs[static_cast<size_t>(i)] *
          ws[static_cast<size_t>(c * per_group * weight.size(2) * weight.size(3) + k)];
    }
  }
  return from_values(y, out);
}

Shape out_shape(const ConvTransposeCase& c) {
  Shape out{c.x[0], c.weight[1] * c.options.groups, 0, 0};
  for (int i = 0; i < 2; ++i) {
    out[2 + i] = (c.x[2 + i] - 1) * c.options.stride[i] - 2 * c.options.padding[i] +
                 c.options.dilation[i] * (c.weight[2 + i] - 1) + c.options.output_padding[i] + 1;
  }
  return out;
}

TEST(ConvTranspose2d, AgreesWithTheDefinition) {
  for (const ConvTransposeCase& c : transpose_cases()) {
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const auto value = [&](const Shape& s, uint64_t seed) {
        return to(normal(s, seed, dtype == f64 ? f64 : f32), dtype);
      };
      const Tensor x = value(c.x, 1);
      const Tensor weight = value(c.weight, 2);
      const Tensor bias = value({c.weight[1] * c.options.groups}, 3);
      const double unit = dtype == f64 ? 1e-14 : dtype == f32 ? 2e-6 : dtype == f16 ? 1e-3 : 8e-3;
      const Tensor expected = reference(x, weight, bias, c.options, out_shape(c));
      for (const Tensor& image :
           {x, channels_last(x), dtype == f64 || dtype == f32 ? test::strided(x) : x}) {
        const Tensor y = conv_transpose2d(image, weight, bias, c.options);
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_TRUE(y.is_channels_last()) << c.name;
        test::expect_near(y, expected, unit * std::sqrt(double(weight.numel())), c.name);
      }
    }
  }
}

TEST(ConvTranspose2d, Gradcheck) {
  for (const ConvTransposeCase& c : transpose_cases()) {
    if (c.x.numel() * c.weight.numel() > 100000) continue;
    const auto f = [&](const Inputs& in) {
      return conv_transpose2d(in[0], in[1], in[2], c.options);
    };
    const Inputs in{test::leaf(c.x, 1), test::leaf(c.weight, 2),
                    test::leaf({c.weight[1] * c.options.groups}, 3)};
    EXPECT_EQ(gradcheck(f, in), "") << c.name;
    EXPECT_EQ(gradcheck(f, {test::strided(in[0]), test::strided(in[1]), in[2]}), "") << c.name;
  }
}

// <conv(x), y> = <x, conv_transpose(y)>.
TEST(ConvTranspose2d, IsTheAdjointOfConv2d) {
  const Tensor x = normal({2, 8, 9, 7}, 1);
  const Tensor weight = normal({6, 4, 3, 2}, 2);
  const Conv2dOptions options{.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2};
  const Tensor forward = conv2d(x, weight, {}, options);
  const Tensor y = normal(forward.shape(), 3);
  const Tensor back = conv_transpose2d(y, weight, {},
                                       {.stride = {2, 3},
                                        .padding = {1, 0},
                                        .output_padding = {0, 2},
                                        .dilation = {2, 1},
                                        .groups = 2});
  ASSERT_EQ(back.shape(), x.shape());
  const auto dot = [](const Tensor& a, const Tensor& b) {
    const auto as = a.to_vector<double>();
    const auto bs = b.to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < as.size(); ++i)
      sum += as[i] * bs[i];
    return sum;
  };
  EXPECT_NEAR(dot(forward, y), dot(x, back), 1e-10);
}

TEST(ConvTranspose2d, RefusesWhatDoesNotFit) {
  const Tensor x = normal({2, 4, 5, 5}, 1, f32);
  const auto refused = [&](const Shape& weight, const ConvTranspose2dOptions& options,
                           const Tensor& bias = {}) {
    return test::error_of([&] { conv_transpose2d(x, normal(weight, 2, f32), bias, options); });
  };
  EXPECT_NE(refused({3, 4, 3, 3}, {}).find("[2, 4, 5, 5], weight [3, 4, 3, 3]"), std::string::npos);
  EXPECT_NE(refused({4, 3, 3, 3}, {.output_padding = {1, 0}}).find("output padding [1, 0]"),
            std::string::npos);
  EXPECT_NE(refused({4, 3, 3, 3}, {.padding = {4, 0}}).find("a positive size"), std::string::npos);
  EXPECT_NE(refused({4, 3, 3, 3}, {.groups = 3}).find("groups 3"), std::string::npos);
  EXPECT_NE(refused({4, 3, 3, 3}, {}, normal({4}, 1, f32)).find("a bias of shape [3]"),
            std::string::npos);
  EXPECT_NE(refused({4, 3, 3, 3}, {.stride = {2147483647, 2147483647}}), "no error");
}

}  // namespace
}  // namespace weft
