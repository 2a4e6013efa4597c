#include "ops/creation.h"

#include "autograd/engine.h"
#include "core/parallel.h"
#include "core/random.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft {
namespace {

using Values = std::vector<double>;

Values values(const Tensor& x) {
  return x.to_vector<double>();
}

TEST(Creation, ConstantsInEveryDtype) {
  for (const DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const Options options{.dtype = dtype};
    EXPECT_EQ(values(zeros({2, 3}, options)), Values(6, 0)) << to_string(dtype);
    EXPECT_EQ(values(ones({5}, options)), Values(5, 1)) << to_string(dtype);
    const double three = dtype == boolean ? 1 : 3;
    EXPECT_EQ(values(full({100'003}, 3, options)), Values(100'003, three))
        << to_string(dtype);  // several pieces
    EXPECT_EQ(full({0, 4}, 3, options).numel(), 0);
    EXPECT_EQ(full({}, 3, options).item(), three);
    EXPECT_EQ(full({2}, 3, options).dtype(), dtype);
  }
  EXPECT_EQ(full({2}, INT64_MAX, {.dtype = i64}).to_vector<int64_t>(),
            (std::vector<int64_t>(2, INT64_MAX)));
  EXPECT_THROW(zeros({-1}), Error);
}

TEST(Creation, LikesKeepShapeDtypeAndLayout) {
  const Tensor image = channels_last(ones({2, 3, 4, 5}, {.dtype = bf16}));
  const Tensor twos = full_like(image, 2);
  EXPECT_TRUE(twos.is_channels_last());
  EXPECT_EQ(twos.dtype(), bf16);
  EXPECT_EQ(values(twos), Values(120, 2));
  EXPECT_EQ(values(zeros_like(test::strided(ones({2, 3})))), Values(6, 0));
  EXPECT_EQ(values(ones_like(image)), Values(120, 1));
}

TEST(Creation, Ranges) {
  EXPECT_EQ(arange(4).dtype(), i64);
  EXPECT_EQ(values(arange(4)), (Values{0, 1, 2, 3}));
  EXPECT_EQ(values(arange(5, -1, -2)), (Values{5, 3, 1}));
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), f32);
  EXPECT_EQ(values(arange(0, 1, 0.25)), (Values{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(3, 1).numel(), 0);
  EXPECT_EQ(arange(0, 3, 1, {.dtype = f64}).dtype(), f64);
  EXPECT_EQ(arange(INT64_MAX - 2, INT64_MAX).to_vector<int64_t>(),
            (std::vector<int64_t>{INT64_MAX - 2, INT64_MAX - 1}));
  EXPECT_EQ(arange(INT64_MIN, INT64_MIN + 2).to_vector<int64_t>(),
            (std::vector<int64_t>{INT64_MIN, INT64_MIN + 1}));
  EXPECT_THROW(arange(0, 3, 0), Error);
  EXPECT_THROW(arange(0.0, INFINITY), Error);
  EXPECT_THROW(arange(INT64_MIN, INT64_MAX), Error);
}

TEST(Creation, LinspaceMeetsBothEnds) {
  EXPECT_EQ(values(linspace(0, 1, 5, {.dtype = f64})), (Values{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(values(linspace(3, -3, 3)), (Values{3, 0, -3}));
  EXPECT_EQ(values(linspace(2, 7, 1)), (Values{2}));
  EXPECT_EQ(linspace(2, 7, 0).numel(), 0);
  const Values tenths = values(linspace(0.1, 0.7, 11, {.dtype = f64}));
  EXPECT_EQ(tenths.back(), 0.7);
  EXPECT_THROW(linspace(0, 1, 3, {.dtype = i64}), Error);
  EXPECT_THROW(linspace(0, 1, -1), Error);
}

TEST(Creation, Identity) {
  EXPECT_EQ(values(eye(2)), (Values{1, 0, 0, 1}));
  EXPECT_EQ(values(eye(2, 3)), (Values{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(eye(3, 2)), (Values{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
  EXPECT_EQ(eye(2, 2, {.dtype = i64}).dtype(), i64);
}

TEST(Fill, WritesViewsOfAnyLayoutAndNothingElse) {
  const Tensor x = zeros({3, 4});
  fill_(alias(x, {3, 2}, {4, 2}), 5);
  EXPECT_EQ(values(x), (Values{5, 0, 5, 0, 5, 0, 5, 0, 5, 0, 5, 0}));
  const uint32_t version = x.version();
  EXPECT_TRUE(zero_(x).is_same(x));
  EXPECT_EQ(values(x), Values(12, 0));
  EXPECT_GT(x.version(), version);
  EXPECT_THROW(fill_(Tensor(), 1), Error);
}

TEST(Fill, EndsTheHistory) {
  const Tensor x = full({2}, 3, {.dtype = f64}).set_requires_grad();
  const Tensor y = mul(x, x);
  const Tensor h = neg(x);
  fill_(h, 7);
  backward(sum(add(y, h)));
  EXPECT_EQ(values(x.grad()), (Values{6, 6}));
  EXPECT_THROW(fill_(x, 1), Error);  // a leaf that wants a gradient
}

struct Moments {
  double mean, variance, lowest, highest;
};
Moments moments(const Tensor& x) {
  const Values v = values(x);
  const auto n = static_cast<double>(v.size());
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) / n;
  double squares = 0;
  for (const double value : v)
    squares += (value - mean) * (value - mean);
  return {mean, squares / n, *std::min_element(v.begin(), v.end()),
          *std::max_element(v.begin(), v.end())};
}

TEST(Random, UniformStaysInItsHalfOpenInterval) {
  manual_seed(3);
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Moments m = moments(rand({200'000}, {.dtype = dtype}));
    EXPECT_NEAR(m.mean, 0.5, 0.004) << to_string(dtype);
    EXPECT_NEAR(m.variance, 1.0 / 12, 0.001) << to_string(dtype);
    EXPECT_GE(m.lowest, 0) << to_string(dtype);
    EXPECT_LT(m.highest, 1) << to_string(dtype);
    const Tensor x = empty({100'000}, {.dtype = dtype});
    const Moments wide = moments(uniform_(x, -2, 6));
    EXPECT_NEAR(wide.mean, 2, 0.04) << to_string(dtype);
    EXPECT_GE(wide.lowest, -2) << to_string(dtype);
    EXPECT_LT(wide.highest, 6) << to_string(dtype);
  }
  EXPECT_THROW(rand({2}, {.dtype = i64}), Error);
  EXPECT_THROW(uniform_(empty({2}), 1, 0), Error);
}

TEST(Random, NormalHasItsMoments) {
  manual_seed(4);
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Moments m = moments(randn({200'000}, {.dtype = dtype}));
    EXPECT_NEAR(m.mean, 0, 0.01) << to_string(dtype);
    EXPECT_NEAR(m.variance, 1, 0.02) << to_string(dtype);
    const Tensor x = empty({200'000}, {.dtype = dtype});
    const Moments shifted = moments(normal_(x, 3, 0.5));
    EXPECT_NEAR(shifted.mean, 3, 0.01) << to_string(dtype);
    EXPECT_NEAR(shifted.variance, 0.25, 0.01) << to_string(dtype);
  }
  EXPECT_THROW(normal_(empty({2}), 0, -1), Error);
}

TEST(Random, TruncatedNormalHasTheMomentsOfItsFormula) {
  manual_seed(5);
  // Standard normal cut to [-1, 2]: mean (φ(-1) - φ(2)) / Z, second moment 1 + (-φ(-1) - 2φ(2)) /
  // Z.
  const auto density = [](double z) {
    return std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
  };
  const double mass = 0.5 * (std::erf(2 / std::sqrt(2.0)) + std::erf(1 / std::sqrt(2.0)));
  const double mean = (density(-1) - density(2)) / mass;
  const double variance = 1 + (-density(-1) - 2 * density(2)) / mass - mean * mean;
  for (const DType dtype : {f32, f64}) {
    const Tensor x = empty({200'000}, {.dtype = dtype});
    const Moments m = moments(trunc_normal_(x, 0, 1, -1, 2));
    EXPECT_NEAR(m.mean, mean, 0.006);
    EXPECT_NEAR(m.variance, variance, 0.006);
    EXPECT_GE(m.lowest, -1);
    EXPECT_LE(m.highest, 2);
  }
  const Moments far =
      moments(trunc_normal_(empty({1000}), 0, 0.02, -2, 2));  // bounds at 100 deviations
  EXPECT_NEAR(far.variance, 0.0004, 0.0001);
  EXPECT_TRUE(std::isfinite(far.lowest) && std::isfinite(far.highest));
  EXPECT_THROW(trunc_normal_(empty({2}), 0, 1, 2, 1), Error);
}

TEST(Random, IntegersCoverTheirRangeEvenly) {
  manual_seed(6);
  std::vector<int> counts(7);
  for (const int64_t value : randint(-3, 4, {70'000}).to_vector<int64_t>()) {
    ASSERT_TRUE(value >= -3 && value < 4);
    ++counts[static_cast<size_t>(value + 3)];
  }
  for (const int count : counts)
    EXPECT_NEAR(count, 10'000, 5 * 93);  // five standard deviations
  EXPECT_EQ(randint(0, 9, {2}, {.dtype = i32}).dtype(), i32);
  EXPECT_THROW(randint(2, 2, {1}), Error);
  const auto extremes = randint(INT64_MIN, INT64_MAX, {100}).to_vector<int64_t>();
  EXPECT_TRUE(std::any_of(extremes.begin(), extremes.end(), [](int64_t v) { return v < 0; }));
  EXPECT_TRUE(std::any_of(extremes.begin(), extremes.end(), [](int64_t v) { return v > 0; }));
}

TEST(Random, BernoulliFollowsItsProbabilities) {
  manual_seed(7);
  EXPECT_NEAR(moments(bernoulli({100'000}, 0.3)).mean, 0.3, 0.0073);
  EXPECT_EQ(values(bernoulli({3}, 0)), Values(3, 0));
  EXPECT_EQ(values(bernoulli({3}, 1)), Values(3, 1));
  const Tensor p = from_values(std::vector<double>{0, 1, 0, 1}, {2, 2});
  const Tensor draw = bernoulli(p);
  EXPECT_EQ(values(draw), values(p));
  EXPECT_EQ(draw.dtype(), f64);
  EXPECT_THROW(bernoulli({1}, 1.5), Error);
  EXPECT_THROW(bernoulli(from_values(std::vector<float>{NAN})), Error);
}

TEST(Random, PermutationsHoldEachNumberOnce) {
  manual_seed(8);
  const auto first = randperm(1000).to_vector<int64_t>();
  const auto second = randperm(1000).to_vector<int64_t>();
  EXPECT_NE(first, second);
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, arange(1000).to_vector<int64_t>());
  EXPECT_EQ(randperm(0).numel(), 0);
  std::array<int, 6> seen{};  // all orders of three, equally often
  for (int i = 0; i < 6000; ++i) {
    const auto p = randperm(3).to_vector<int64_t>();
    ++seen[static_cast<size_t>(2 * p[0] + (p[1] > p[2] ? 1 : 0))];
  }
  for (const int count : seen)
    EXPECT_NEAR(count, 1000, 5 * 29);
}

// A draw depends on the key and the element's logical index: not on threads, layout, or what
// surrounds it.
TEST(Random, ValuesDependOnTheKeyAndTheIndexAlone) {
  const auto draws = [](int threads) {
    manual_seed(9);
    set_num_threads(threads);
    std::vector<Values> all;
    for (const Tensor& x : {rand({70'001}), randn({70'001}), randint(0, 1000, {70'001}),
                            bernoulli({70'001}, 0.5), trunc_normal_(empty({70'001}))}) {
      all.push_back(values(x));
    }
    set_num_threads(1);
    return all;
  };
  EXPECT_EQ(draws(1), draws(3));

  manual_seed(9);
  const Values longer = values(randn({5000}));
  manual_seed(9);
  const Values shorter = values(randn({4999}));
  EXPECT_EQ(Values(longer.begin(), longer.end() - 1), shorter);

  manual_seed(9);
  const Tensor view = test::strided(zeros({5, 1000}));
  normal_(view);
  EXPECT_EQ(values(view), longer);
  EXPECT_NE(values(randn({5000})), longer);  // the next operator takes the next stream
}

}  // namespace
}  // namespace weft
