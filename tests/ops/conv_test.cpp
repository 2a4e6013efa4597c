#include "ops/conv.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "conv_reference.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/detail/conv.h"
#include "ops/detail/images.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using detail::ConvShape;
using detail::ConvWay;
using test::normal;
using Inputs = std::vector<Tensor>;

struct ConvCase {
  const char* name;
  Shape x, weight;
  Conv2dOptions options;
};

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> list{
      {"one pixel", {1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {"one channel", {3, 1, 9, 7}, {8, 1, 3, 3}, {.padding = {1, 1}}},
      {"three channels, seven by seven, stride 2",
       {2, 3, 17, 14},
       {16, 3, 7, 7},
       {.stride = {2, 2}, .padding = {3, 3}}},
      {"channels that fill no vector", {2, 5, 6, 7}, {11, 5, 3, 3}, {.padding = {1, 1}}},
      {"one by one", {2, 16, 7, 5}, {24, 16, 1, 1}, {}},
      {"one by one, stride 2", {2, 16, 7, 6}, {24, 16, 1, 1}, {.stride = {2, 2}}},
      {"one by one, uneven strides", {2, 6, 9, 8}, {11, 6, 1, 1}, {.stride = {3, 2}}},
      {"as many outputs as channels, stride 2",
       {2, 64, 9, 10},
       {72, 64, 3, 3},
       {.stride = {2, 2}, .padding = {1, 1}}},
      {"one by one, many pixels", {2, 9, 60, 47}, {20, 9, 1, 1}, {}},
      {"three by three", {2, 16, 10, 12}, {32, 16, 3, 3}, {.padding = {1, 1}}},
      {"three by three, odd sizes, no padding", {3, 32, 9, 7}, {16, 32, 3, 3}, {}},
      {"three by three, much padding", {2, 16, 5, 4}, {32, 16, 3, 3}, {.padding = {3, 2}}},
      {"three by three, a long row", {1, 16, 3, 230}, {40, 16, 3, 3}, {.padding = {1, 1}}},
      {"three by three, many small images", {37, 32, 4, 4}, {32, 32, 3, 3}, {.padding = {1, 1}}},
      {"stride 2, padding 1",
       {2, 16, 11, 9},
       {24, 16, 3, 3},
       {.stride = {2, 2}, .padding = {1, 1}}},
      {"stride 2 and as many pixels out as in",
       {2, 16, 3, 3},
       {24, 16, 3, 3},
       {.stride = {2, 2}, .padding = {2, 2}}},
      {"stride larger than the kernel", {2, 3, 13, 11}, {5, 3, 2, 2}, {.stride = {3, 4}}},
      {"uneven everything",
       {2, 6, 13, 10},
       {9, 6, 5, 3},
       {.stride = {3, 2}, .padding = {2, 1}, .dilation = {1, 2}}},
      {"dilation", {2, 8, 12, 11}, {16, 8, 3, 3}, {.padding = {2, 3}, .dilation = {2, 3}}},
      {"stride and dilation share a factor",
       {1, 4, 15, 15},
       {8, 4, 3, 3},
       {.stride = {2, 2}, .padding = {2, 2}, .dilation = {2, 2}}},
      {"groups", {2, 12, 8, 7}, {18, 4, 3, 3}, {.padding = {1, 1}, .groups = 3}},
      {"groups of whole vectors", {2, 32, 6, 6}, {32, 16, 3, 3}, {.stride = {2, 1}, .groups = 2}},
      {"depthwise", {2, 19, 8, 9}, {19, 1, 3, 3}, {.padding = {1, 1}, .groups = 19}},
      {"depthwise, stride 2",
       {2, 16, 9, 9},
       {16, 1, 5, 5},
       {.stride = {2, 2}, .padding = {2, 2}, .groups = 16}},
      {"depthwise, two outputs each",
       {2, 6, 7, 7},
       {12, 1, 3, 3},
       {.padding = {1, 1}, .groups = 6}},
      {"kernel as large as the image", {4, 8, 6, 5}, {16, 8, 6, 5}, {}},
      {"more outputs than one run", {3, 24, 6, 6}, {136, 24, 3, 3}, {.padding = {1, 1}}},
  };
  return list;
}

struct Result {
  Tensor y, dx, dw, db;
};

Result run(ConvWay way, const ConvShape& shape, const Tensor& x, const Tensor& weight,
           const Tensor& bias, const Tensor& g) {
  const DType dtype = x.dtype();
  Result r{detail::empty_images(shape.out_shape(), dtype),
           detail::empty_images(shape.in_shape(), dtype),
           empty(shape.weight_shape(), {.dtype = dtype}), empty({shape.outputs}, {.dtype = dtype})};
  conv_forward(shape, channels_last(x), weight, bias, r.y, way);
  conv_backward_data(shape, channels_last(g), weight, {}, r.dx, way);
  conv_backward_weights(shape, channels_last(x), channels_last(g), r.dw, r.db, way);
  return r;
}

// Every way that can compute a case agrees with the definition.
void expect_way(ConvWay way, DType dtype, double tolerance) {
  int computed = 0;
  for (const ConvCase& c : conv_cases()) {
    const ConvShape shape = test::conv_shape(c.x, c.weight, c.options);
    if (!detail::conv_can(way, shape, dtype)) continue;
    ++computed;
    const Tensor x = normal(c.x, 1, dtype);
    const Tensor weight = normal(c.weight, 2, dtype);
    const Tensor bias = normal({c.weight[0]}, 3, dtype);
    const Tensor g = normal(shape.out_shape(), 4, dtype);
    const test::ConvReference expected = test::reference_conv(shape, x, weight, bias, g);
    const Result actual = run(way, shape, x, weight, bias, g);
    // Errors grow with the root of the number of terms, as the values do.
    test::expect_near(actual.y, expected.y,
                      tolerance * std::sqrt(double(weight.numel() / weight.size(0))), c.name);
    test::expect_near(actual.dx, expected.dx, tolerance * std::sqrt(double(weight.numel())),
                      c.name);
    test::expect_near(actual.dw, expected.dw, tolerance * std::sqrt(double(g.numel())), c.name);
    test::expect_near(actual.db, expected.db, tolerance * std::sqrt(double(g.numel())), c.name);
  }
  EXPECT_GT(computed, 0);
}

TEST(Conv2d, DirectF32AgreesWithTheDefinition) {
  expect_way(ConvWay::direct, f32, 1e-6);
}
TEST(Conv2d, DirectF64AgreesWithTheDefinition) {
  expect_way(ConvWay::direct, f64, 1e-14);
}
TEST(Conv2d, GemmF32AgreesWithTheDefinition) {
  expect_way(ConvWay::gemm, f32, 1e-6);
}
TEST(Conv2d, GemmF64AgreesWithTheDefinition) {
  expect_way(ConvWay::gemm, f64, 1e-14);
}
TEST(Conv2d, WinogradAgreesWithTheDefinition) {
  expect_way(ConvWay::winograd, f32, 2e-6);
}
TEST(Conv2d, DepthwiseF32AgreesWithTheDefinition) {
  expect_way(ConvWay::depthwise, f32, 1e-6);
}
TEST(Conv2d, DepthwiseF64AgreesWithTheDefinition) {
  expect_way(ConvWay::depthwise, f64, 1e-14);
}
TEST(Conv2d, OneDnnAgreesWithTheDefinition) {
  expect_way(ConvWay::onednn, f32, 1e-6);
}

TEST(Conv2d, AgreesWithTheDefinitionInAnyLayout) {
  for (const ConvCase& c : conv_cases()) {
    const ConvShape shape = test::conv_shape(c.x, c.weight, c.options);
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const DType wide = dtype == f64 ? f64 : f32;
      const Tensor g = to(normal(shape.out_shape(), 4, wide), dtype);
      const auto value = [&](const Shape& s, uint64_t seed) {
        return to(normal(s, seed, wide), dtype);
      };
      const Tensor x = value(c.x, 1);
      const Tensor weight = value(c.weight, 2);
      const Tensor bias = value({c.weight[0]}, 3);
      const test::ConvReference expected = test::reference_conv(shape, x, weight, bias, g);
      const double unit = dtype == f64 ? 1e-14 : dtype == f32 ? 2e-6 : dtype == f16 ? 1e-3 : 8e-3;
      for (const bool last : {false, true}) {
        const Tensor image = clone(last ? channels_last(x) : x).set_requires_grad();
        const Tensor w = clone(last ? channels_last(weight) : weight).set_requires_grad();
        const Tensor b = clone(bias).set_requires_grad();
        const Tensor y = conv2d(image, w, b, c.options);
        EXPECT_TRUE(y.is_channels_last()) << c.name;
        EXPECT_EQ(y.dtype(), dtype);
        backward(y, g);
        EXPECT_EQ(w.grad().strides(), w.strides()) << c.name;
        const double fan = std::sqrt(double(weight.numel()));
        const double pixels = std::sqrt(double(g.numel()));
        test::expect_near(y, expected.y, unit * fan, c.name);
        test::expect_near(image.grad(), expected.dx, unit * fan, c.name);
        test::expect_near(w.grad(), expected.dw, unit * pixels, c.name);
        test::expect_near(b.grad(), expected.db, unit * pixels, c.name);
      }
    }
  }
}

TEST(Conv2d, StridedAndRepeatedOperands) {
  const Tensor x = normal({2, 6, 5, 4}, 1, f32);
  const Tensor weight = normal({8, 6, 3, 3}, 2, f32);
  const Conv2dOptions options{.padding = {1, 1}};
  const auto plain = conv2d(x, weight, {}, options).to_vector<float>();
  EXPECT_EQ(conv2d(test::strided(x), test::strided(weight), {}, options).to_vector<float>(), plain);

  const Tensor one = test::repeated({1, 2, 4, 4}, 0.5);
  const Tensor all = test::repeated({3, 2, 3, 3}, 2.0);
  EXPECT_EQ(conv2d(one, all).to_vector<double>(), std::vector<double>(12, 18.0));
}

TEST(Conv2d, Gradcheck) {
  const std::vector<ConvCase> small{
      {"plain", {2, 3, 5, 4}, {4, 3, 3, 2}, {.padding = {1, 1}}},
      {"stride, dilation",
       {1, 2, 7, 6},
       {3, 2, 2, 3},
       {.stride = {2, 3}, .padding = {1, 2}, .dilation = {2, 1}}},
      {"groups", {2, 4, 4, 4}, {6, 2, 3, 3}, {.padding = {1, 0}, .groups = 2}},
      {"depthwise", {2, 5, 4, 5}, {5, 1, 3, 3}, {.stride = {1, 2}, .padding = {1, 1}, .groups = 5}},
      {"no images", {0, 2, 4, 4}, {3, 2, 3, 3}, {}},
  };
  for (const ConvCase& c : small) {
    const auto f = [&](const Inputs& in) { return conv2d(in[0], in[1], in[2], c.options); };
    const Inputs in{test::leaf(c.x, 1), test::leaf(c.weight, 2), test::leaf({c.weight[0]}, 3)};
    EXPECT_EQ(gradcheck(f, in), "") << c.name;
    EXPECT_EQ(gradcheck(f, {test::strided(in[0]), test::strided(in[1]), in[2]}), "") << c.name;
  }
}

TEST(Conv2d, NoImages) {
  const Tensor x = empty({0, 3, 8, 8});
  const Tensor weight = clone(normal({4, 3, 3, 3}, 2, f32)).set_requires_grad();
  const Tensor y = conv2d(x, weight);
  EXPECT_EQ(y.shape(), (Shape{0, 4, 6, 6}));
  backward(y, empty({0, 4, 6, 6}));
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(108, 0.0f));
}

// The same bits with any number of threads, and for an image in any batch.
TEST(Conv2d, BitsDependOnNeitherThreadsNorBatch) {
  const int threads = num_threads();
  for (const ConvWay way :
       {ConvWay::direct, ConvWay::gemm, ConvWay::winograd, ConvWay::depthwise}) {
    for (const DType dtype : {f32, f64}) {
      for (const ConvCase& c : conv_cases()) {
        const ConvShape shape = test::conv_shape(c.x, c.weight, c.options);
        if (!detail::conv_can(way, shape, dtype)) continue;
        const Tensor x = channels_last(normal(c.x, 1, dtype));
        const Tensor weight = normal(c.weight, 2, dtype);
        const Tensor g = channels_last(normal(shape.out_shape(), 4, dtype));
        set_num_threads(1);
        const Result one = run(way, shape, x, weight, {}, g);
        set_num_threads(3);
        const Result three = run(way, shape, x, weight, {}, g);
        EXPECT_EQ(one.y.to_vector<double>(), three.y.to_vector<double>()) << c.name;
        EXPECT_EQ(one.dx.to_vector<double>(), three.dx.to_vector<double>()) << c.name;
        EXPECT_EQ(one.dw.to_vector<double>(), three.dw.to_vector<double>()) << c.name;
        EXPECT_EQ(one.db.to_vector<double>(), three.db.to_vector<double>()) << c.name;

        ConvShape last = shape;  // the last image alone
        last.images = 1;
        const auto image = [&](const Tensor& t) {
          return alias(t, {1, t.size(1), t.size(2), t.size(3)}, t.strides(),
                       (t.size(0) - 1) * t.stride(0));
        };
        const Tensor y = detail::empty_images(last.out_shape(), dtype);
        const Tensor dx = detail::empty_images(last.in_shape(), dtype);
        conv_forward(last, image(x), weight, {}, y, way);
        conv_backward_data(last, image(g), weight, {}, dx, way);
        EXPECT_EQ(y.to_vector<double>(), image(one.y).to_vector<double>()) << c.name;
        EXPECT_EQ(dx.to_vector<double>(), image(one.dx).to_vector<double>()) << c.name;
      }
    }
  }
  set_num_threads(threads);
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const Tensor x = normal({2, 4, 5, 5}, 1, f32);
  const auto refused = [&](const Shape& weight, const Conv2dOptions& options = {},
                           const Tensor& bias = {}) {
    return test::error_of([&] { conv2d(x, normal(weight, 2, f32), bias, options); });
  };
  EXPECT_NE(refused({3, 3, 3, 3}).find("[2, 4, 5, 5], weight [3, 3, 3, 3]"), std::string::npos);
  EXPECT_NE(refused({3, 4, 6, 3}).find("a window that fits"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.dilation = {3, 1}}).find("dilation [3, 1]"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.stride = {0, 1}}).find("a stride"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.padding = {-1, 1}}).find("a padding"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.stride = {1}}).find("a stride of two numbers"),
            std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.groups = 3}).find("groups 3"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.groups = 0}).find("groups 0"), std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {}, normal({4}, 1, f32)).find("a bias of shape [3]"),
            std::string::npos);
  EXPECT_NE(refused({3, 4, 3, 3}, {.padding = {2147483647, 2147483647}}).find("["),
            std::string::npos);
  EXPECT_NE(test::error_of([&] {
              conv2d(x, normal({3, 4, 3, 3}, 2, f64));
            }).find("of one dtype"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] {
              conv2d(normal({4, 5, 5}, 1, f32), x);
            }).find("4 dims"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { conv2d({}, x); }).find("undefined"), std::string::npos);
  const Tensor integers = empty({1, 1, 3, 3}, {.dtype = i64});
  EXPECT_NE(test::error_of([&] { conv2d(integers, integers); }).find("a floating dtype"),
            std::string::npos);
  const Tensor none = empty({2, 0, 5, 5});
  EXPECT_NE(test::error_of([&] {
              conv2d(none, empty({3, 0, 3, 3}));
            }).find("[2, 0, 5, 5]"),
            std::string::npos);
  const Tensor absurd =
      alias(normal({1}, 1, f32), {1, 1, int64_t{1} << 30, int64_t{1} << 30}, {0, 0, 0, 0});
  EXPECT_NE(test::error_of([&] { conv2d(absurd, normal({1, 1, 3, 3}, 1, f32)); }), "no error");
}

}  // namespace
}  // namespace weft
