// The linear layer's product against a naive loop in double.
#include "ops/linear.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/ledger.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::leaf;
using test::normal;
using test::strided;
using Inputs = std::vector<Tensor>;

// x [rows, in]
Tensor naive(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto in = x.to_vector<double>();
  const auto w = weight.to_vector<double>();
  const auto b = bias.defined() ? bias.to_vector<double>()
                                : std::vector<double>(static_cast<size_t>(weight.size(0)));
  const auto rows = static_cast<size_t>(x.size(0)), wide = static_cast<size_t>(x.size(1));
  std::vector<double> out;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t o = 0; o < b.size(); ++o) {
      double sum = b[o];
      for (size_t p = 0; p < wide; ++p)
        sum += in[i * wide + p] * w[o * wide + p];
      out.push_back(sum);
    }
  }
  return from_values(out, {x.size(0), weight.size(0)});
}

TEST(Linear, AgreesWithANaiveLoop) {
  for (const auto& [rows, in, out] :
       {std::array<int64_t, 3>{8, 784, 128}, {8, 128, 10}, {1, 5, 3}, {100, 33, 65}}) {
    const Tensor x = normal({rows, in}, 1);
    const Tensor weight = normal({out, in}, 2);
    const Tensor bias = normal({out}, 3);
    const Tensor expected = naive(x, weight, bias);
    expect_near(linear(x, weight, bias), expected, 1e-12);
    expect_near(linear(strided(x), strided(weight), strided(bias)), expected, 1e-12);
    expect_near(linear(x, weight), naive(x, weight, {}), 1e-12);
    expect_near(linear(to(x, f32), to(weight, f32), to(bias, f32)), expected, 2e-4);
    const Tensor half = linear(to(x, bf16), to(weight, bf16), to(bias, bf16));
    EXPECT_EQ(half.dtype(), bf16);
    expect_near(half, naive(to(x, bf16), to(weight, bf16), to(bias, bf16)), 1.0 / 128);
  }
}

TEST(Linear, KeepsLeadingDims) {
  const Tensor x = normal({2, 3, 4, 5}, 1);
  const Tensor weight = normal({6, 5}, 2);
  const Tensor bias = normal({6}, 3);
  const Tensor out = linear(x, weight, bias);
  EXPECT_EQ(out.shape(), (Shape{2, 3, 4, 6}));
  expect_near(reshape(out, {24, 6}), naive(reshape(x, {24, 5}), weight, bias), 1e-13);
  expect_near(linear(strided(x), weight, bias), out, 0);
  EXPECT_EQ(linear(normal({5}), weight, bias).shape(), (Shape{6}));
}

TEST(Linear, EmptyInputs) {
  const Tensor bias = from_values(std::vector<float>{1, 2});
  EXPECT_EQ(linear(ones({0, 3}), ones({2, 3}), bias).shape(), (Shape{0, 2}));
  EXPECT_EQ(linear(ones({2, 0}), ones({2, 0}), bias).to_vector<float>(),
            (std::vector<float>{1, 2, 1, 2}));
  EXPECT_EQ(linear(ones({2, 3}), ones({0, 3})).shape(), (Shape{2, 0}));
  const Tensor weight = leaf({2, 3});
  backward(linear(normal({0, 3}), weight), empty({0, 2}, {.dtype = f64}));
  EXPECT_EQ(weight.grad().to_vector<double>(), std::vector<double>(6, 0.0));
}

TEST(Linear, Gradients) {
  const auto layer = [](const Inputs& in) { return linear(in[0], in[1], in[2]); };
  for (const Shape& shape : {Shape{4, 5}, Shape{5}, Shape{2, 3, 5}}) {
    EXPECT_EQ(gradcheck(layer, {leaf(shape, 1), leaf({3, 5}, 2), leaf({3}, 3)}), "")
        << to_string(shape);
    EXPECT_EQ(gradcheck(layer,
                        {strided(leaf(shape, 1)), strided(leaf({3, 5}, 2)), strided(leaf({3}, 3))}),
              "")
        << to_string(shape);
    // Each alone: the others are skipped.
    EXPECT_EQ(gradcheck(layer, {leaf(shape, 1), normal({3, 5}, 2), normal({3}, 3)}), "")
        << to_string(shape);
    EXPECT_EQ(gradcheck(layer, {normal(shape, 1), leaf({3, 5}, 2), normal({3}, 3)}), "")
        << to_string(shape);
    EXPECT_EQ(gradcheck(layer, {normal(shape, 1), normal({3, 5}, 2), leaf({3}, 3)}), "")
        << to_string(shape);
    EXPECT_EQ(gradcheck([](const Inputs& in) { return linear(in[0], in[1]); },
                        {leaf(shape, 1), leaf({3, 5}, 2)}),
              "");
  }
}

TEST(Linear, ChangedInputsAreNoticed) {
  const Tensor x = normal({2, 3}, 1);
  const Tensor weight = leaf({4, 3}, 2);
  const Tensor out = linear(x, weight);
  fill_(x, 0.0);
  EXPECT_NE(error_of([&] {
              backward(out, ones({2, 4}, {.dtype = f64}));
            }).find("[linear]"),
            std::string::npos);
}

TEST(Linear, BitsDependOnTheSampleAlone) {
  const Tensor x = normal({100, 784}, 1, f32);
  const Tensor weight = normal({128, 784}, 2, f32);
  const Tensor bias = normal({128}, 3, f32);
  const int threads = num_threads();
  set_num_threads(1);
  const Tensor expected = linear(x, weight, bias);
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    EXPECT_EQ(linear(x, weight, bias).to_vector<float>(), expected.to_vector<float>());
    for (const int64_t batch : {1, 2, 3, 8, 50}) {
      EXPECT_EQ(linear(slice(x, 0, 0, batch), weight, bias).to_vector<float>(),
                slice(expected, 0, 0, batch).to_vector<float>())
          << batch << " samples, " << count << " threads";
    }
  }
  set_num_threads(threads);
}

TEST(Linear, ErrorsNameShapesAndDtypes) {
  EXPECT_EQ(error_of([] {
              linear(ones({2, 3}), ones({4, 5}));
            }),
            "[linear] expected x [..., in] and weight [out, in], got [2, 3] and [4, 5]");
  EXPECT_EQ(error_of([] {
              linear(ones({2, 3}), ones({4, 3}), ones({5}));
            }),
            "[linear] expected a bias [4], got [5]");
  EXPECT_NE(error_of([] {
              linear(ones({2, 3}, {.dtype = f64}), ones({4, 3}));
            }).find("one dtype"),
            std::string::npos);
  EXPECT_NE(error_of([] { linear(Tensor(), ones({4, 3})); }).find("[linear]"), std::string::npos);
  // Sizes whose product passes int64 are refused, not multiplied.
  const Tensor vast = alias(ones({1}), {int64_t{1} << 30, int64_t{1} << 30, 0}, {0, 0, 1});
  EXPECT_NE(error_of([&] { linear(vast, ones({2, 0})); }), "no error");
}

}  // namespace
}  // namespace weft
