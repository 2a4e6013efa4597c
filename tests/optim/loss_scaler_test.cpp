// Dynamic loss scaling.
#include "optim/loss_scaler.h"

#include "ops/ops.h"
#include "weft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

using optim::LossScaler;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Pair {
  Tensor a = zeros({5000}).set_requires_grad();
  Tensor b = zeros({3}, {.dtype = f64}).set_requires_grad();
  Tensor unused = zeros({2}).set_requires_grad();
  optim::Parameters parameters{std::vector<NamedTensor>{{"a", a}, {"b", b}, {"unused", unused}}};

  void set(double value) const {
    a.set_grad(full({5000}, value));
    b.set_grad(full({3}, value, {.dtype = f64}));
  }
};

TEST(LossScaler, DividesGradientsAndGrowsAfterAnInterval) {
  const Pair pair;
  LossScaler scaler({.scale = 8, .interval = 2});
  pair.set(24);
  EXPECT_TRUE(scaler.unscale(pair.parameters));
  EXPECT_EQ(sum(pair.a.grad()).item(), 3 * 5000);
  EXPECT_EQ(sum(pair.b.grad()).item(), 9);
  EXPECT_EQ(scaler.scale(), 8);
  pair.set(24);
  EXPECT_TRUE(scaler.unscale(pair.parameters));
  EXPECT_EQ(sum(pair.a.grad()).item(), 3 * 5000);  // by the scale it was made with
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_EQ(scaler.skipped(), 0);
}

TEST(LossScaler, BacksOffWhereAnyElementIsNotFinite) {
  const Pair pair;
  LossScaler scaler({.scale = 8, .interval = 2});
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t at : {0, 4095, 4096, 4999}) {
      pair.set(1);
      pair.a.grad().data<float>()[at] = bad;
      const double before = scaler.scale();
      EXPECT_FALSE(scaler.unscale(pair.parameters)) << bad << " at " << at;
      EXPECT_EQ(scaler.scale(), before / 2);
    }
  }
  EXPECT_EQ(scaler.skipped(), 12);
  // A step that was skipped begins the count anew.
  LossScaler again({.scale = 8, .interval = 2});
  pair.set(1);
  EXPECT_TRUE(again.unscale(pair.parameters));
  pair.set(std::numeric_limits<double>::infinity());
  EXPECT_FALSE(again.unscale(pair.parameters));
  pair.set(1);
  EXPECT_TRUE(again.unscale(pair.parameters));
  EXPECT_EQ(again.scale(), 4);
}

TEST(LossScaler, StaysWithinItsBounds) {
  const Pair pair;
  LossScaler scaler({.scale = 8, .interval = 1, .largest = 16, .smallest = 4});
  for (int i = 0; i < 3; ++i) {
    pair.set(1);
    EXPECT_TRUE(scaler.unscale(pair.parameters));
  }
  EXPECT_EQ(scaler.scale(), 16);
  for (int i = 0; i < 2; ++i) {
    pair.set(1);
    pair.b.grad().data<double>()[1] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(scaler.unscale(pair.parameters));
  }
  EXPECT_EQ(scaler.scale(), 4);
  pair.set(1);
  pair.b.grad().data<double>()[1] = std::numeric_limits<double>::quiet_NaN();
  try {
    scaler.unscale(pair.parameters);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("for parameter b"));
  }
}

TEST(LossScaler, StateIsSharedAndRefusalsSaySo) {
  const Pair pair;
  LossScaler one({.scale = 1024, .interval = 10});
  LossScaler other;
  pair.set(1);
  one.unscale(pair.parameters);
  const auto from = one.state_dict();
  const auto to_state = other.state_dict();
  ASSERT_EQ(from.size(), to_state.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to_state[i].name);
    copy_(to_state[i].tensor, from[i].tensor);
  }
  EXPECT_EQ(other.scale(), 1024);
  EXPECT_THROW(LossScaler({.scale = 0}), Error);
  EXPECT_THROW(LossScaler({.growth = 0.5}), Error);
  EXPECT_THROW(LossScaler({.backoff = 1}), Error);
  const Tensor half = zeros({2}, {.dtype = f16}).set_requires_grad();
  half.set_grad(zeros({2}, {.dtype = f16}));
  EXPECT_THROW(one.unscale(std::vector<Tensor>{half}), Error);
}

}  // namespace
}  // namespace weft
