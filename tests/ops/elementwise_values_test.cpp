// What is particular to some elementwise operators: promotion, values at the edges of the number
// line, accuracy far from the rows' test intervals, layouts, errors.
#include "autograd/engine.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace weft {
namespace {

using test::kInf;
using test::kNan;
using test::strided;
using test::tolerance_of;
using test::uniform;
using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

// torch.result_type of (row tensor, column tensor) and (row tensor, column scalar), as PyTorch 2
// gives it.
TEST(ElementwisePromotion, IsPyTorchs) {
  const std::vector<DType> dtypes{boolean, u8, i32, i64, f16, bf16, f32, f64};
  const std::vector<std::vector<DType>> tensors{
      {boolean, u8, i32, i64, f16, bf16, f32, f64}, {u8, u8, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i64, f16, bf16, f32, f64},    {i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f32, f32, f64},     {bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f64},     {f64, f64, f64, f64, f64, f64, f64, f64}};
  const std::vector<DType> with_bool{boolean, u8, i32, i64, f16, bf16, f32, f64};
  const std::vector<DType> with_int{i64, u8, i32, i64, f16, bf16, f32, f64};
  const std::vector<DType> with_float{f32, f32, f32, f32, f16, bf16, f32, f64};
  const std::vector<DType> divided{f32, f32, f32, f32, f16, bf16, f32, f64};  // by itself, or by 2
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const Tensor a = ones({2}, {.dtype = dtypes[i]});
    for (size_t j = 0; j < dtypes.size(); ++j) {
      const Tensor b = ones({2}, {.dtype = dtypes[j]});
      EXPECT_EQ(add(a, b).dtype(), tensors[i][j])
          << to_string(dtypes[i]) << " + " << to_string(dtypes[j]);
      EXPECT_EQ(maximum(a, b).dtype(), tensors[i][j]);
      EXPECT_EQ(lt(a, b).dtype(), boolean);
    }
    EXPECT_EQ(add(a, true).dtype(), with_bool[i]) << to_string(dtypes[i]);
    EXPECT_EQ(add(a, 2).dtype(), with_int[i]) << to_string(dtypes[i]);
    EXPECT_EQ(mul(1.5, a).dtype(), with_float[i]) << to_string(dtypes[i]);
    EXPECT_EQ(div(a, a).dtype(), divided[i]) << to_string(dtypes[i]);
    EXPECT_EQ(div(a, 2).dtype(), divided[i]) << to_string(dtypes[i]);
    EXPECT_EQ(exp(a).dtype(), divided[i]) << to_string(dtypes[i]);
  }
}

TEST(ElementwisePromotion, ComputesBeforeItNarrows) {
  EXPECT_EQ(div(from_values(std::vector<int64_t>{7, -7, 1}), 2).to_vector<double>(),
            (std::vector<double>{3.5, -3.5, 0.5}));
  const Tensor sum =
      add(from_values(std::vector<int32_t>{1}), from_values(std::vector<double>{0.25}));
  EXPECT_EQ(sum.item(), 1.25);
  // The scalar keeps its precision beside a 16-bit tensor: 1/3 is not rounded to bf16 first.
  const Tensor third = mul(to(full({1}, 3.0), bf16), 1.0 / 3);
  EXPECT_EQ(third.item(), 1);
  EXPECT_THROW(add_(from_values(std::vector<int32_t>{1}), 1.5), Error);
}

// What IEEE 754 and PyTorch give at zeros, infinities and NaN, for f32, f64 and their 16-bit
// relatives.
TEST(ElementwiseEdges, AreIeees) {
  const std::vector<double> x{-kInf, -1, -0.0, 0, 1, kInf, kNan};
  const auto expect = [&](const char* name, const Function& f,
                          const std::vector<double>& expected) {
    for (const DType dtype : {f32, f64, bf16}) {
      const auto y = f({to(from_values(x), dtype)}).to_vector<double>();
      for (size_t i = 0; i < y.size(); ++i) {
        if (std::isnan(expected[i])) {
          EXPECT_TRUE(std::isnan(y[i])) << name << " " << x[i] << " gave " << y[i];
        } else {
          const double bound =
              std::isinf(expected[i]) ? 0 : tolerance_of(dtype) * std::abs(expected[i]);
          EXPECT_TRUE(y[i] == expected[i] || std::abs(y[i] - expected[i]) <= bound)
              << name << " " << x[i] << ": " << y[i];
          EXPECT_EQ(std::signbit(y[i]), std::signbit(expected[i])) << name << " " << x[i];
        }
      }
    }
  };
#define EDGE(name, ...) expect(#name, [](const Inputs& in) { return name(in[0]); }, {__VA_ARGS__})
  const double e = std::exp(1.0);
  EDGE(abs, kInf, 1, 0, 0, 1, kInf, kNan);
  EDGE(sign, -1, -1, 0, 0, 1, 1, 0);
  EDGE(floor, -kInf, -1, -0.0, 0, 1, kInf, kNan);
  EDGE(sqrt, kNan, kNan, -0.0, 0, 1, kInf, kNan);
  EDGE(rsqrt, kNan, kNan, -kInf, kInf, 1, 0, kNan);
  EDGE(reciprocal, -0.0, -1, -kInf, kInf, 1, 0, kNan);
  EDGE(exp, 0, 1 / e, 1, 1, e, kInf, kNan);
  EDGE(expm1, -1, std::expm1(-1.0), -0.0, 0, std::expm1(1.0), kInf, kNan);
  EDGE(log, kNan, kNan, -kInf, -kInf, 0, kInf, kNan);
  EDGE(log1p, kNan, -kInf, -0.0, 0, std::log(2.0), kInf, kNan);
  EDGE(sin, kNan, std::sin(-1.0), -0.0, 0, std::sin(1.0), kNan, kNan);
  EDGE(cos, kNan, std::cos(1.0), 1, 1, std::cos(1.0), kNan, kNan);
  EDGE(tanh, -1, std::tanh(-1.0), -0.0, 0, std::tanh(1.0), 1, kNan);
  EDGE(erf, -1, std::erf(-1.0), -0.0, 0, std::erf(1.0), 1, kNan);
  EDGE(sigmoid, 0, 1 / (1 + e), 0.5, 0.5, 1 / (1 + 1 / e), 1, kNan);
  EDGE(relu, 0, 0, 0, 0, 1, kInf, kNan);
  EDGE(softplus, 0, std::log1p(1 / e), std::log(2.0), std::log(2.0), std::log1p(e), kInf, kNan);
  EDGE(elu, -1, std::expm1(-1.0), -0.0, 0, 1, kInf, kNan);
  EDGE(clamp, -kInf, -1, -0.0, 0, 1, kInf, kNan);
#undef EDGE
}

TEST(ElementwiseEdges, RoundingIsToEven) {
  const Tensor x =
      from_values(std::vector<float>{-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 8388609.0f});
  EXPECT_EQ(round(x).to_vector<double>(), (std::vector<double>{-2, -2, -0.0, 0, 2, 2, 8388609}));
}

TEST(ElementwiseEdges, MaximumAndMinimumPropagateNan) {
  const Tensor a = from_values(std::vector<float>{NAN, 1, NAN, 2});
  const Tensor b = from_values(std::vector<float>{1, NAN, NAN, 3});
  const auto high = maximum(a, b).to_vector<double>();
  const auto low = minimum(a, b).to_vector<double>();
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(std::isnan(high[i]) && std::isnan(low[i]));
  EXPECT_EQ(high[3], 3);
  EXPECT_EQ(low[3], 2);
}

TEST(ElementwiseEdges, TiesShareTheGradient) {
  const Tensor a = from_values(std::vector<double>{1, 2, 3}).set_requires_grad();
  const Tensor b = from_values(std::vector<double>{1, 3, 2}).set_requires_grad();
  backward(maximum(a, b), ones({3}, {.dtype = f64}));
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0.5, 0, 1}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{0.5, 1, 0}));
}

TEST(Pow, HasPyTorchsValuesAndGradients) {
  const Tensor base =
      from_values(std::vector<double>{-2, -2, 0, 0, 0, 2, -8, kInf}).set_requires_grad();
  const Tensor exponent =
      from_values(std::vector<double>{3, 2, 0, 1, 2, 0, 1.0 / 3, -1}).set_requires_grad();
  const Tensor out = pow(base, exponent);
  const auto y = out.to_vector<double>();
  EXPECT_EQ((std::vector<double>(y.begin(), y.begin() + 6)),
            (std::vector<double>{-8, 4, 1, 0, 0, 1}));
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_EQ(y[7], 0);
  backward(out, ones_like(out));
  const auto db = base.grad().to_vector<double>();
  EXPECT_EQ((std::vector<double>(db.begin(), db.begin() + 6)),
            (std::vector<double>{12, -4, 0, 1, 0, 0}));
  const auto de = exponent.grad().to_vector<double>();
  EXPECT_TRUE(std::isnan(de[0]));  // the logarithm of a negative number
  EXPECT_EQ((std::vector<double>(de.begin() + 2, de.begin() + 5)), (std::vector<double>{0, 0, 0}));
  EXPECT_NEAR(de[5], std::log(2.0), 1e-15);
}

TEST(Pow, WholeNumbersStayExact) {
  const Tensor base = from_values(std::vector<int64_t>{3, -3, 2, 0, 1, -1, -1, 5});
  const Tensor exponent = from_values(std::vector<int64_t>{39, 3, 62, 0, -4, -3, -2, -1});
  EXPECT_EQ(pow(base, exponent).to_vector<int64_t>(),
            (std::vector<int64_t>{4052555153018976267, -27, int64_t{1} << 62, 1, 1, -1, 1, 0}));
  EXPECT_EQ(pow(base, 2).to_vector<int64_t>()[1], 9);
}

TEST(Pow, ScalarExponentAtZeroHasItsLimitAsGradient) {
  const std::vector<std::pair<double, double>> cases{{2, 0}, {1, 1}, {0, 0}, {0.5, kInf}};
  for (const auto& [exponent, slope] : cases) {
    const Tensor x = zeros({1}, {.dtype = f64}).set_requires_grad();
    backward(pow(x, exponent));
    EXPECT_EQ(x.grad().item(), slope) << exponent;
  }
}

TEST(Clamp, TakesOneBoundOrNone) {
  const Tensor x = from_values(std::vector<float>{-2, 0, 2});
  EXPECT_EQ(clamp(x, 0).to_vector<double>(), (std::vector<double>{0, 0, 2}));
  EXPECT_EQ(clamp(x, -kInf, 1).to_vector<double>(), (std::vector<double>{-2, 0, 1}));
  EXPECT_EQ(clamp(x).to_vector<double>(), x.to_vector<double>());
  const Tensor whole = from_values(std::vector<int64_t>{INT64_MIN, -2, 0, 2, INT64_MAX});
  EXPECT_EQ(clamp(whole).to_vector<int64_t>(), whole.to_vector<int64_t>());
  EXPECT_EQ(clamp(whole, -1.5, 1.5).to_vector<int64_t>(), (std::vector<int64_t>{-1, -1, 0, 1, 1}));
}

// Far from the rows' test intervals: relative error against the double function where f32 can
// represent it.
TEST(ElementwiseAccuracy, HoldsOverTheWholeRange) {
  std::vector<float> x;
  for (int exponent = -120; exponent < 120; ++exponent) {
    for (const double fraction : {1.0, 1.1, 1.37, 1.5, 1.73, 1.99}) {
      x.push_back(static_cast<float>(std::ldexp(fraction, exponent)));
      x.push_back(-x.back());
    }
  }
  for (double v = -104; v < 90; v += 0.37)
    x.push_back(static_cast<float>(v));
  const Tensor input = from_values(x);
  const auto check = [&](const char* name, const Tensor& out, double (*reference)(double),
                         double tolerance) {
    const auto y = out.to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = reference(static_cast<double>(x[i]));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[i])) << name << " " << x[i];
      } else if (std::abs(expected) > std::numeric_limits<float>::max()) {
        EXPECT_TRUE(std::isinf(y[i])) << name << " " << x[i];
      } else {
        // Below the normal numbers the last place has a fixed size.
        EXPECT_NEAR(y[i], expected, tolerance * std::max(std::abs(expected), 0x1p-126))
            << name << " " << x[i];
      }
    }
  };
  check("exp", exp(input), std::exp, 2e-7);
  check("expm1", expm1(input), std::expm1, 2.5e-7);
  check("log", log(input), std::log, 2e-7);
  check("log1p", log1p(input), std::log1p, 2e-7);
  check("sin", sin(input), std::sin, 1.2e-7);
  check("cos", cos(input), std::cos, 1.2e-7);
  check("tanh", tanh(input), std::tanh, 3e-7);
  check("erf", erf(input), std::erf, 3e-7);
  // Its own tail, where 1 + erf has nothing left; x²/2, rounded, is what limits it there.
  const auto gelu_of = [](double v) { return 0.5 * v * std::erfc(v * -0.70710678118654752); };
  check("gelu", gelu(input), gelu_of, 1e-5);
}

TEST(ElementwiseLayouts, FollowTheFirstInputOfTheResultsShape) {
  const Tensor image = channels_last(uniform({2, 3, 4, 5}, -1, 1, 1, f32));
  const Tensor bias = uniform({3, 1, 1}, -1, 1, 2, f32);
  EXPECT_TRUE(add(bias, image).is_channels_last());
  EXPECT_TRUE(lt(image, 0).is_channels_last());
  EXPECT_TRUE(isnan(image).is_channels_last());
  const Tensor gap = strided(uniform({4, 5}, -1, 1, 3, f32));
  EXPECT_TRUE(neg(gap).is_contiguous());
}

TEST(ElementwiseErrors, SayWhatWasExpected) {
  const Tensor a = zeros({2, 3});
  EXPECT_EQ(test::error_of([&] { add(a, zeros({4})); }),
            "[add] expected shapes that broadcast, got [2, 3] and [4]");
  EXPECT_EQ(test::error_of([&] { exp(Tensor()); }),
            "[exp] expected a tensor, got an undefined one");
  EXPECT_EQ(test::error_of([&] { add(a, Tensor()); }),
            "[add] expected a tensor, got an undefined one");
  EXPECT_NE(test::error_of([&] { add_(a, zeros({5, 2, 3})); }), "no error");
  EXPECT_NE(test::error_of([&] { exp_(zeros({2}, {.dtype = i64})); }), "no error");
  EXPECT_NE(test::error_of([&] { add_(alias(a, {4, 3}, {0, 1}), 1); }), "no error");
}

}  // namespace
}  // namespace weft
