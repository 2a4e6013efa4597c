#include "autograd/grad_mode.h"

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace weft {
namespace {

using test::error_of;
using test::leaf;

TEST(GradMode, NoGradRecordsNothing) {
  const Tensor x = leaf({3});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(grad_enabled());
    const Tensor y = x * x;
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(y.is_leaf());
    {
      const EnableGrad enable;
      EXPECT_TRUE((x * x).requires_grad());
      const NoGrad again;
      EXPECT_FALSE((x * x).requires_grad());
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE((x * x).requires_grad());
}

TEST(GradMode, EndsWithAnException) {
  try {
    const NoGrad no_grad;
    throw std::runtime_error("out");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(GradMode, BelongsToTheThread) {
  const NoGrad no_grad;
  std::thread([] { EXPECT_TRUE(grad_enabled()); }).join();
}

TEST(GradMode, OnlyTensorsThatNeedAGradientRecord) {
  const Tensor x = test::normal({3});
  EXPECT_FALSE((x * x).requires_grad());
  EXPECT_TRUE((x * leaf({3})).requires_grad());
}

TEST(RequiresGrad, IsForFloatingLeaves) {
  const Tensor x = test::normal({3});
  EXPECT_FALSE(x.requires_grad());
  EXPECT_TRUE(x.set_requires_grad().requires_grad());
  EXPECT_FALSE(x.set_requires_grad(false).requires_grad());
  EXPECT_THROW(empty({2}, {.dtype = i64}).set_requires_grad(), Error);
  const Tensor y = leaf({3}) * 2.0;
  EXPECT_THROW(y.set_requires_grad(false), Error);
  EXPECT_THROW((void)y.grad(), Error);
  EXPECT_THROW(y.set_grad({}), Error);
}

TEST(Detach, CutsTheHistoryAndSharesTheValues) {
  const Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  const Tensor cut = y.detach();
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_EQ(cut.raw(), y.raw());
  sum(x * cut).backward();  // d/dx (x * const)
  test::expect_near(x.grad(), cut, 1e-15);
}

TEST(InPlace, LeavesAreRefusedWhileRecording) {
  const Tensor x = leaf({3});
  const std::vector<double> before = x.to_vector<double>();
  EXPECT_NE(error_of([&] { add_(x, 1.0); }).find("a leaf of shape [3] that requires a gradient"),
            std::string::npos);
  EXPECT_EQ(x.to_vector<double>(), before) << "a refusal changes nothing";
  const NoGrad no_grad;
  const uint32_t version = x.version();
  add_(x, 1.0);
  EXPECT_EQ(x.to_vector<double>()[0], before[0] + 1);
  EXPECT_GT(x.version(), version);
}

TEST(InPlace, SharedStorageIsRefusedWhileRecording) {
  const Tensor x = leaf({4});
  const Tensor y = x * 2.0;
  const Tensor view = reshape(y, {2, 2});
  EXPECT_NE(error_of([&] { add_(y, 1.0); }).find("shares its storage"), std::string::npos);
  const NoGrad no_grad;
  EXPECT_NO_THROW(add_(y, 1.0));
}

TEST(InPlace, ChangesOfAnIntermediateAreDifferentiated) {
  const Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  add_(y, x);
  add_(y, 5.0);
  sum(y).backward();  // 2 x + x + 5
  test::expect_near(x.grad(), full({3}, 3.0, {.dtype = f64}), 1e-15);
}

TEST(InPlace, ACopyTakesOverTheHistory) {
  const Tensor a = leaf({2, 2}, 1);
  const Tensor b = leaf({2}, 2);
  const Tensor y = a * 3.0;
  copy_(y, b);  // broadcast
  sum(y).backward();
  test::expect_near(b.grad(), full({2}, 2.0, {.dtype = f64}), 1e-15);
  EXPECT_FALSE(a.grad().defined() && sum(a.grad()).item() != 0)
      << "what was overwritten has no gradient";
}

TEST(InPlace, BackwardRefusesAValueThatWasChanged) {
  const Tensor x = leaf({3});
  const Tensor y = exp(x);  // saves its result
  const Tensor z = sum(y);
  {
    const NoGrad no_grad;
    add_(y, 1.0);
  }
  const std::string error = error_of([&] { z.backward(); });
  EXPECT_NE(error.find("[exp] expected a tensor of shape [3] as backward saved it"),
            std::string::npos)
      << error;
  EXPECT_FALSE(x.grad().defined());
}

TEST(InPlace, AChangeThroughAViewIsSeen) {
  const Tensor x = leaf({4});
  const Tensor w = test::normal({4}, 2);
  const Tensor z = sum(x * w);
  const Tensor view = reshape(w, {2, 2});
  add_(view, 1.0);  // w has no history: allowed, and noticed
  EXPECT_THROW(z.backward(), Error);
}

TEST(InPlace, AParameterStepBetweenForwardAndBackwardIsNoticed) {
  const Tensor x = leaf({2, 3}, 1);
  const Tensor w = leaf({2, 3}, 2);
  const Tensor loss = sum(x * w);
  {
    const NoGrad no_grad;
    sub_(w, 0.1);
  }
  EXPECT_THROW(loss.backward(), Error);
}

}  // namespace
}  // namespace weft
