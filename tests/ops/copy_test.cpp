#include "ops/copy.h"

#include "autograd/engine.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/join.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

using test::counted;
using test::error_of;
using test::strided;
using Doubles = std::vector<double>;

TEST(Clone, HasItsOwnMemoryAndTheSameLayout) {
  for (const DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const Tensor x = to(counted({2, 3}, f32), dtype);
    const Tensor copy = clone(x);
    EXPECT_NE(copy.storage(), x.storage());
    EXPECT_EQ(copy.dtype(), dtype);
    EXPECT_EQ(copy.to_vector<double>(), x.to_vector<double>()) << to_string(dtype);
  }
  const Tensor image = channels_last(counted({2, 3, 4, 5}, f32));
  EXPECT_TRUE(clone(image).is_channels_last());
  EXPECT_EQ(clone(image).to_vector<double>(), image.to_vector<double>());
  const Tensor apart = strided(counted({3, 4}, f32));
  EXPECT_TRUE(clone(apart).is_dense());
  EXPECT_EQ(clone(apart).to_vector<double>(), apart.to_vector<double>());
  EXPECT_EQ(clone(test::repeated({2, 2})).to_vector<double>(), Doubles(4, 0.7));
  EXPECT_EQ(clone(empty({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(clone(full({}, 2.0)).item(), 2);
}

TEST(Contiguous, CopiesOnlyWhatIsNotRowMajor) {
  const Tensor x = counted({2, 3, 4, 5}, f32);
  EXPECT_TRUE(contiguous(x).is_same(x));
  const Tensor copy = contiguous(channels_last(x));
  EXPECT_TRUE(copy.is_contiguous());
  EXPECT_EQ(copy.to_vector<double>(), x.to_vector<double>());
  EXPECT_TRUE(contiguous(strided(x)).is_contiguous());
}

TEST(ChannelsLast, CopiesOnlyWhatIsNotNhwc) {
  const Tensor x = counted({2, 3, 2, 2}, f32);
  const Tensor image = channels_last(x);
  EXPECT_TRUE(image.is_channels_last());
  EXPECT_TRUE(channels_last(image).is_same(image));
  EXPECT_EQ(image.to_vector<double>(), x.to_vector<double>());
  // The channels of a pixel lie side by side.
  EXPECT_EQ(image.data<float>()[0], 0);
  EXPECT_EQ(image.data<float>()[1], 4);
  EXPECT_EQ(image.data<float>()[3], 1);
  EXPECT_NE(error_of([] { channels_last(empty({2, 3})); }), "no error");
}

TEST(To, ConvertsAsTheDtypeSays) {
  const Tensor x = from_values(Doubles{-1.75, 0, 0.5, 300.25});
  EXPECT_TRUE(to(x, f64).is_same(x));
  EXPECT_EQ(to(x, i32).to_vector<double>(), (Doubles{-1, 0, 0, 300}));
  EXPECT_EQ(to(x, boolean).to_vector<double>(), (Doubles{1, 0, 1, 1}));
  EXPECT_EQ(to(x, f16).to_vector<double>(), (Doubles{-1.75, 0, 0.5, 300.25}));
  EXPECT_EQ(to(x, bf16).to_vector<double>(), (Doubles{-1.75, 0, 0.5, 300}));  // eight bits
  EXPECT_EQ(to(from_values(std::vector<int64_t>{INT64_MAX}), i64).to_vector<int64_t>()[0],
            INT64_MAX);
  EXPECT_EQ(to(strided(counted({2, 3}, f32)), f64).to_vector<double>(),
            (Doubles{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(to(channels_last(counted({2, 3, 4, 5}, f32)), bf16).is_channels_last());
}

TEST(To, OnlyFloatsKeepTheirHistory) {
  const Tensor x = from_values(Doubles{1, 2}).set_requires_grad();
  const Tensor half = to(x, bf16);
  backward(half, from_values(std::vector<BFloat16>{BFloat16(3), BFloat16(4)}, {2}));
  EXPECT_EQ(x.grad().dtype(), f64);
  EXPECT_EQ(x.grad().to_vector<double>(), (Doubles{3, 4}));
  EXPECT_FALSE(to(x, i64).requires_grad());
}

TEST(CopyInto, BroadcastsConvertsAndWritesNothingElse) {
  const Tensor x = zeros({2, 4}, {.dtype = i64});
  const Tensor columns = alias(x, {2, 2}, {4, 2});
  const uint32_t version = x.version();
  EXPECT_TRUE(copy_(columns, from_values(Doubles{1.5, 2.5})).is_same(columns));
  EXPECT_EQ(x.to_vector<double>(), (Doubles{1, 0, 2, 0, 1, 0, 2, 0}));
  EXPECT_GT(x.version(), version);
  copy_(x, full({}, 7));
  EXPECT_EQ(x.to_vector<double>(), Doubles(8, 7));
  EXPECT_NE(error_of([&] { copy_(x, zeros({3})); }), "no error");
  EXPECT_NE(error_of([&] {
              copy_(x, zeros({5, 2, 4}));
            }).find("[copy_] expected a source that broadcasts to [2, 4], got [5, 2, 4]"),
            std::string::npos);
}

// What an operator in place reads is what was there before it, wherever that lies.
TEST(InPlace, OperandsMayBePartsOfTheTarget) {
  const Tensor square = test::normal({40, 40}, 1, f32);
  const Tensor shift = test::normal({1000, 3}, 2, f32);
  const Tensor line = test::normal({100000}, 3, f32) + 10.0;
  const auto expect_same = [](const Tensor& x, auto change, auto expected) {
    const Tensor before = clone(x);
    const Tensor wanted = expected(before);
    change(x);
    EXPECT_EQ(x.to_vector<float>(), wanted.to_vector<float>());
  };
  expect_same(
      square, [](const Tensor& x) { add_(x, transpose(x, 0, 1)); },
      [](const Tensor& x) { return x + clone(transpose(x, 0, 1)); });
  expect_same(
      shift, [](const Tensor& x) { x -= narrow(x, 0, 0, 1); },
      [](const Tensor& x) { return x - clone(narrow(x, 0, 0, 1)); });
  expect_same(
      line, [](const Tensor& x) { x /= select(x, 0, 0); },
      [](const Tensor& x) { return x / clone(select(x, 0, 0)); });
  expect_same(
      line, [](const Tensor& x) { copy_(narrow(x, 0, 1, 99999), narrow(x, 0, 0, 99999)); },
      [](const Tensor& x) {
        return cat(std::vector<Tensor>{narrow(x, 0, 0, 1), narrow(x, 0, 0, 99999)}, 0);
      });
  expect_same(
      line, [](const Tensor& x) { copy_(x, x); }, [](const Tensor& x) { return x; });
}

TEST(InPlace, ResultsOfTemporariesLive) {
  const Tensor& kept = relu_(neg(ones({4})));
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
}

TEST(Copies, NameUndefinedTensors) {
  const Tensor nothing;
  const Tensor target = ones({2});
  EXPECT_NE(test::error_of([&] { clone(nothing); }).find("[clone]"), std::string::npos);
  EXPECT_NE(test::error_of([&] { contiguous(nothing); }).find("[contiguous]"), std::string::npos);
  EXPECT_NE(test::error_of([&] { to(nothing, f64); }).find("[to]"), std::string::npos);
  EXPECT_NE(test::error_of([&] { copy_(target, nothing); }).find("[copy_]"), std::string::npos);
}

TEST(To, IntegersAreTheNearestThereAre) {
  const Tensor x = from_values(std::vector<double>{NAN, 1e20, -INFINITY, 2.9});
  const std::vector<int64_t> nearest = {0, std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min(), 2};
  EXPECT_EQ(to(x, i64).to_vector<int64_t>(), nearest);
  EXPECT_EQ(x.to_vector<int64_t>(), nearest);
  EXPECT_EQ(full({1}, Scalar(1e300), {.dtype = i64}).item_int(),
            std::numeric_limits<int64_t>::max());
}

TEST(CopyInto, ItsTargetForgetsWhatItHeld) {
  const Tensor before = from_values(Doubles{1, 2}).set_requires_grad();
  const Tensor source = from_values(Doubles{5}).set_requires_grad();
  const Tensor target = clone(before);
  copy_(target, source);
  backward(target, from_values(Doubles{10, 20}));
  EXPECT_EQ(source.grad().to_vector<double>(), Doubles{30});
  EXPECT_FALSE(before.grad().defined());
}

}  // namespace
}  // namespace weft
