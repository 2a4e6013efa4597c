#include "autograd/engine.h"
#include "autograd/leaf.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::leaf;

TEST(Hooks, RunInTheOrderTheyWereAdded) {
  const Tensor x = leaf({2});
  std::string order;
  add_accumulated_hook(x, [&](const Tensor&) { order += "c"; });
  add_grad_hook(x, [&](const Tensor&) {
    order += "a";
    return Tensor();
  });
  add_grad_hook(x, [&](const Tensor&) {
    order += "b";
    return Tensor();
  });
  add_accumulated_hook(x, [&](const Tensor&) { order += "d"; });
  sum(x).backward();
  EXPECT_EQ(order, "abcd") << "gradient hooks before, accumulated hooks after the sum";
  sum(x).backward();
  EXPECT_EQ(order, "abcdabcd");
}

TEST(Hooks, AreRemovedById) {
  const Tensor x = leaf({2});
  std::string order;
  const HookId a = add_grad_hook(x, [&](const Tensor&) {
    order += "a";
    return Tensor();
  });
  add_grad_hook(x, [&](const Tensor&) {
    order += "b";
    return Tensor();
  });
  const HookId c = add_accumulated_hook(x, [&](const Tensor&) { order += "c"; });
  remove_hook(x, a);
  sum(x).backward();
  EXPECT_EQ(order, "bc");
  remove_hook(x, c);
  remove_hook(x, c);  // gone already: nothing happens
  sum(x).backward();
  EXPECT_EQ(order, "bcb");
}

TEST(Hooks, MayRemoveThemselves) {
  const Tensor x = leaf({2});
  std::string order;
  HookId once;
  once = add_grad_hook(x, [&](const Tensor&) {
    order += "1";
    remove_hook(x, once);
    return Tensor();
  });
  add_grad_hook(x, [&](const Tensor&) {
    order += "2";
    return Tensor();
  });
  sum(x).backward();
  sum(x).backward();
  EXPECT_EQ(order, "122");
}

TEST(Hooks, AResultReplacesTheGradient) {
  const Tensor x = leaf({3});
  add_grad_hook(x, [](const Tensor& g) { return g * 10.0; });
  add_grad_hook(x, [](const Tensor& g) { return g + 1.0; });
  sum(x * 2.0).backward();
  expect_near(x.grad(), full({3}, 21.0, {.dtype = f64}), 1e-15);
}

TEST(Hooks, AResultOfAnotherShapeOrDtypeIsRefused) {
  const Tensor x = leaf({3});
  const HookId shape =
      add_grad_hook(x, [](const Tensor&) { return full({2}, 1.0, {.dtype = f64}); });
  EXPECT_NE(error_of([&] {
              sum(x).backward();
            }).find("expected a gradient of shape [3] and dtype f64, got [2]"),
            std::string::npos);
  remove_hook(x, shape);
  add_grad_hook(x, [](const Tensor&) { return full({3}, 1.0, {.dtype = f32}); });
  EXPECT_THROW(sum(x).backward(), Error);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Hooks, SeeTheWholeGradientOnceWhenALeafIsShared) {
  const Tensor x = leaf({3});
  int grad_calls = 0;
  int accumulated_calls = 0;
  double seen = 0;
  add_grad_hook(x, [&](const Tensor& g) {
    ++grad_calls;
    seen = sum(g).item();
    return Tensor();
  });
  add_accumulated_hook(x, [&](const Tensor& self) {
    ++accumulated_calls;
    EXPECT_TRUE(self.is_same(x));
    EXPECT_EQ(sum(self.grad()).item(), 3 * (1 + 2 + 3));
  });
  sum(x * 1.0 + x * 2.0 + x * 3.0).backward();
  EXPECT_EQ(grad_calls, 1);
  EXPECT_EQ(accumulated_calls, 1);
  EXPECT_EQ(seen, 18);
}

TEST(Hooks, RunOnceForSeveralRoots) {
  const Tensor x = leaf({1});
  int calls = 0;
  add_accumulated_hook(x, [&](const Tensor&) { ++calls; });
  const std::vector<Tensor> roots = {x * 2.0, x * 3.0};
  backward(roots, {});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Hooks, ALeafIsReadyBeforeEarlierOnesAre) {
  const Tensor early = leaf({2}, 1);
  const Tensor late = leaf({2}, 2);
  std::string order;
  add_accumulated_hook(early, [&](const Tensor&) { order += "early "; });
  add_accumulated_hook(late, [&](const Tensor&) { order += "late "; });
  const Tensor y = exp(exp(early));
  sum(y * late).backward();
  EXPECT_EQ(order, "late early ")
      << "what was used last is ready first: communication can overlap backward";
}

TEST(Hooks, AGradientLandsInItsHome) {
  const Tensor x = test::leaf({2, 3});
  const Tensor flat = full({8}, 5, {f64});
  int asked = 0;
  set_grad_home(x, [&] {
    ++asked;
    return alias(flat, {2, 3}, {3, 1}, 1);
  });
  backward(sum(x * x));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(x.grad().storage() == flat.storage());
  test::expect_near(x.grad(), x.detach() * 2.0, 1e-15);
  backward(sum(x));  // adds to it where it is
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(x.grad().storage() == flat.storage());
  test::expect_near(x.grad(), x.detach() * 2.0 + 1.0, 1e-15);
  EXPECT_EQ(flat.to_vector<double>().front(), 5);
  EXPECT_EQ(flat.to_vector<double>().back(), 5);

  x.set_grad({});
  set_grad_home(x, [&] { return alias(flat, {6}, {1}); });
  EXPECT_NE(test::error_of([&] { backward(sum(x)); }).find("home of shape [2, 3]"),
            std::string::npos);
  x.set_grad({});
  set_grad_home(x, {});
  backward(sum(x));
  EXPECT_FALSE(x.grad().storage() == flat.storage());
}

// An operator that can writes a gradient straight into the home, but only where nobody else adds to
// it or looks at it before.
TEST(Hooks, AGradientIsMadeInItsHome) {
  const Tensor x = test::normal({4, 3});
  const Tensor w = test::leaf({2, 3});
  const auto gradient = [&](const std::function<Tensor()>& loss) {
    w.set_grad({});
    backward(loss());
    return w.grad();
  };
  const auto once = [&] { return sum(square(linear(x, w, {}))); };
  const auto twice = [&] { return once() + sum(exp(linear(x, w, {}))); };
  const Tensor plain_once = gradient(once);
  const Tensor plain_twice = gradient(twice);

  const Tensor flat = full({8}, 5, {f64});
  std::vector<double> before_hooks;
  set_grad_home(w, [&] { return alias(flat, {2, 3}, {3, 1}, 1); });
  for (int i = 0; i < 2; ++i) {
    test::expect_near(gradient(once), plain_once, 0);
    EXPECT_TRUE(w.grad().storage() == flat.storage());
    test::expect_near(gradient(twice), plain_twice, 0);
    EXPECT_TRUE(w.grad().storage() == flat.storage());
  }
  // A hook sees a gradient before it lands.
  const HookId hook = add_grad_hook(w, [&](const Tensor& g) {
    EXPECT_FALSE(g.storage() == flat.storage());
    return g * 2.0;
  });
  test::expect_near(gradient(once), plain_once * 2.0, 0);
  EXPECT_TRUE(w.grad().storage() == flat.storage());
  remove_hook(w, hook);
  // A second backward adds.
  gradient(once);
  backward(once());
  test::expect_near(w.grad(), plain_once * 2.0, 0);
  // Gradients that are asked for land nowhere.
  w.set_grad({});
  const std::vector<Tensor> asked = gradients(once(), std::span(&w, 1));
  test::expect_near(asked.front(), plain_once, 0);
  EXPECT_FALSE(asked.front().storage() == flat.storage());
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(flat.to_vector<double>().front(), 5);
  EXPECT_EQ(flat.to_vector<double>().back(), 5);
}

TEST(Hooks, ThatThrowLeaveBackward) {
  const Tensor x = leaf({2});
  const HookId hook =
      add_grad_hook(x, [](const Tensor&) -> Tensor { throw std::runtime_error("from the hook"); });
  EXPECT_EQ(
      [&] {
        try {
          sum(x).backward();
          return std::string("nothing");
        } catch (const std::runtime_error& error) {
          return std::string(error.what());
        }
      }(),
      "from the hook");
  EXPECT_FALSE(x.grad().defined());
  remove_hook(x, hook);
  sum(x).backward();
  expect_near(x.grad(), full({2}, 1.0, {.dtype = f64}), 1e-15);
}

TEST(Hooks, AKeptGradientIsNotChangedLater) {
  const Tensor x = leaf({2});
  Tensor kept;
  add_grad_hook(x, [&](const Tensor& g) {
    kept = g;
    return Tensor();
  });
  sum(x * 2.0).backward();
  const Tensor first = kept;
  sum(x * 3.0).backward();
  expect_near(first, full({2}, 2.0, {.dtype = f64}), 1e-15);
  expect_near(x.grad(), full({2}, 5.0, {.dtype = f64}), 1e-15);
}

TEST(Hooks, BelongToLeavesThatNeedAGradient) {
  const auto hook = [](const Tensor&) { return Tensor(); };
  EXPECT_THROW(add_grad_hook(test::normal({2}), hook), Error);
  EXPECT_THROW(add_grad_hook(leaf({2}) * 2.0, hook), Error);
  EXPECT_THROW(add_accumulated_hook(Tensor(), [](const Tensor&) {}), Error);
}

}  // namespace
}  // namespace weft
