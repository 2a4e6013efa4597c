#include "autograd/engine.h"

#include "autograd/grad_mode.h"
#include "autograd/leaf.h"
#include "autograd/record.h"
#include "core/ledger.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::leaf;

Tensor constant(const Shape& shape, double value) {
  return full(shape, value, {.dtype = f64});
}

TEST(Backward, SumsOverEveryPath) {
  const Tensor x = leaf({3}, 1);
  const Tensor a = x * x;     // 2x
  const Tensor b = a + x;     // + 1
  sum(a * b + b).backward();  // (x² (x² + x) + x² + x)' = 4x³ + 3x² + 2x + 1
  expect_near(x.grad(),
              x.detach() * x.detach() * x.detach() * 4.0 + x.detach() * x.detach() * 3.0 +
                  x.detach() * 2.0 + 1.0,
              1e-13);
}

TEST(Backward, TheSameTensorTwiceInOneOperator) {
  const Tensor x = leaf({2});
  sum(x * x).backward();
  expect_near(x.grad(), x.detach() * 2.0, 1e-15);
}

TEST(Backward, AccumulatesOverCalls) {
  const Tensor x = leaf({3});
  sum(x * 2.0).backward();
  const Tensor grad = x.grad();
  sum(x * 3.0).backward();
  expect_near(x.grad(), constant({3}, 5), 1e-15);
  EXPECT_TRUE(x.grad().is_same(grad)) << "added in place: it may be a view of a flat buffer";
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  sum(x * 3.0).backward();
  expect_near(x.grad(), constant({3}, 3), 1e-15);
}

TEST(Backward, AddsIntoAGradientThatIsAViewOfAFlatBuffer) {
  const Tensor flat = zeros({10}, {.dtype = f64});
  const Tensor x = leaf({2, 3});
  x.set_grad(alias(flat, {2, 3}, {3, 1}, 4));
  sum(x * 7.0).backward();
  EXPECT_EQ(flat.to_vector<double>(), (std::vector<double>{0, 0, 0, 0, 7, 7, 7, 7, 7, 7}));
}

TEST(Backward, AnExpandedGradientThatAUserSetIsNotAddedIntoInPlace) {
  const Tensor x = leaf({3});
  x.set_grad(alias(constant({1}, 2), {3}, {0}));
  sum(x * x.detach()).backward();
  expect_near(x.grad(), x.detach() + 2.0, 1e-15);
}

TEST(Backward, SetGradChecksShapeAndDtype) {
  const Tensor x = leaf({3});
  EXPECT_THROW(x.set_grad(constant({2}, 1)), Error);
  EXPECT_THROW(x.set_grad(full({3}, 1.0, {.dtype = f32})), Error);
}

TEST(Backward, TheGradientLiesAsTheLeafDoes) {
  const Tensor x = from_values(std::vector<double>(24, 1.5), {1, 2, 3, 4});
  const Tensor image = channels_last(x).detach();
  image.set_requires_grad();
  sum(contiguous(image) * x).backward();
  EXPECT_EQ(image.grad().strides(), image.strides());
  EXPECT_EQ(image.grad().storage()->category(), Category::gradients);
}

TEST(Backward, WantsAOneElementRootOrAGradient) {
  const Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  EXPECT_EQ(error_of([&] { y.backward(); }),
            "[backward] expected a one-element result, or a gradient for it, got shape [3]");
  EXPECT_THROW(backward(y, constant({2}, 1)), Error);
  EXPECT_THROW(backward(y, full({3}, 1.0, {.dtype = f32})), Error);
  EXPECT_THROW(backward(Tensor()), Error);
  EXPECT_THROW(test::normal({1}).backward(), Error);
  backward(y, test::normal({3}, 5));
  expect_near(x.grad(), test::normal({3}, 5) * 2.0, 1e-15);
}

TEST(Backward, StartsAtALeafToo) {
  const Tensor x = leaf({1});
  x.backward();
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(Backward, SeveralRootsInOneWalk) {
  const Tensor x = leaf({3});
  const Tensor shared = x * x;
  const std::vector<Tensor> roots = {sum(shared), shared * 3.0};
  const std::vector<Tensor> gradients = {Tensor(), constant({3}, 2)};
  backward(roots, gradients);
  expect_near(x.grad(), x.detach() * 14.0, 1e-14);  // 2x + 3·2·2x
  EXPECT_THROW(backward(roots, std::span(gradients).first(1)), Error);
}

TEST(Backward, ARootMayLieBelowAnother) {
  const Tensor x = leaf({});
  const Tensor low = x * 2.0;
  const Tensor high = low * 3.0;
  const std::vector<Tensor> roots = {high, low, low};
  backward(roots, {});
  EXPECT_EQ(x.grad().item(), 6 + 2 + 2);
}

TEST(Backward, EveryFloatingDtype) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = full({4}, 1.5, {.dtype = dtype});
    x.set_requires_grad();
    const Tensor y = x * x;
    sum(y).backward();
    EXPECT_EQ(x.grad().dtype(), dtype);
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(4, 3.0)) << to_string(dtype);
  }
}

TEST(Backward, EmptyTensors) {
  const Tensor x = leaf({0, 3});
  sum(x * 2.0).backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
}

TEST(Backward, ASecondOneNeedsRetainGraph) {
  const Tensor x = leaf({3});
  const Tensor y = sum(exp(x));
  backward(y, {}, {.retain_graph = true});
  backward(y, {}, {.retain_graph = true});
  y.backward();
  expect_near(x.grad(), exp(x.detach()) * 3.0, 1e-14);
  EXPECT_NE(error_of([&] {
              y.backward();
            }).find("freed by an earlier backward; that one needs retain_graph"),
            std::string::npos);
  expect_near(x.grad(), exp(x.detach()) * 3.0, 1e-14);
}

TEST(Backward, AGraphSharedWithOneThatWasFreedIsRefused) {
  const Tensor x = leaf({3});
  const Tensor shared = exp(x);
  const Tensor first = sum(shared);
  const Tensor second = sum(shared * 2.0);
  first.backward();
  EXPECT_NE(error_of([&] { second.backward(); }).find("exp"), std::string::npos);
}

TEST(Backward, FrozenLeavesCostNothing) {
  const Tensor x = leaf({3}, 1);
  const Tensor frozen = test::normal({3}, 2);
  sum(x * frozen).backward();
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(Backward, ATensorThatNobodyUsesHasNoGradient) {
  const Tensor x = leaf({3}, 1);
  const Tensor unused = leaf({3}, 2);
  const Tensor dead_end = unused * 2.0;
  sum(x).backward();
  EXPECT_FALSE(unused.grad().defined());
}

// Several outputs: what does not flow back arrives undefined.
TEST(Backward, NodesWithSeveralOutputs) {
  const Tensor x = leaf({}, 1);
  std::vector<Tensor> outs = {empty({}, {.dtype = f64}), empty({}, {.dtype = f64}),
                              empty({}, {.dtype = f64})};
  for (const Tensor& out : outs)
    *out.data<double>() = 1;
  std::vector<bool> arrived;
  const std::vector<Tensor> ins = {x};
  record("three", outs, inputs(std::span<const Tensor>(ins)),
         [&](std::span<const Tensor> gradients, Gradients& to) {
           for (const Tensor& gradient : gradients)
             arrived.push_back(gradient.defined());
           to.set(0, gradients[2]);
         });
  (outs[2] * 5.0 + outs[0]).backward();
  EXPECT_EQ(arrived, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Backward, AnOperatorMayLeaveAGradientOut) {
  const Tensor x = leaf({}, 1);
  const Tensor y = x * 2.0;
  const Tensor out = empty({}, {.dtype = f64});
  *out.data<double>() = 0;
  record("silent", out, inputs(y), [](const Tensor&, Gradients&) {});
  out.backward();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, ManyInputsOverflowTheInlineSlots) {
  std::vector<Tensor> parts;
  for (uint64_t i = 0; i < 9; ++i)
    parts.push_back(leaf({2}, i));
  sum(cat(parts, 0) * constant({18}, 3)).backward();
  for (const Tensor& part : parts)
    expect_near(part.grad(), constant({2}, 3), 1e-15);
}

TEST(Gradients, AreReturnedAndLeaveTheLeavesAlone) {
  const Tensor x = leaf({3}, 1);
  const Tensor y = leaf({3}, 2);
  const Tensor z = leaf({3}, 3);
  int calls = 0;
  add_grad_hook(x, [&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  add_accumulated_hook(x, [&](const Tensor&) { ++calls; });
  const std::vector<Tensor> leaves = {x, z, x};
  const std::vector<Tensor> found = gradients(sum(x * y), leaves);
  expect_near(found[0], y.detach(), 1e-15);
  EXPECT_FALSE(found[1].defined());
  expect_near(found[2], y.detach(), 1e-15);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(y.grad().defined());
  EXPECT_EQ(calls, 0);
}

TEST(Gradients, WantLeavesThatNeedOne) {
  const Tensor x = leaf({3});
  const std::vector<Tensor> not_leaf = {x * 2.0};
  EXPECT_THROW(gradients(sum(x), not_leaf), Error);
  const std::vector<Tensor> frozen = {test::normal({3})};
  EXPECT_THROW(gradients(sum(x), frozen), Error);
}

TEST(Gradients, OfARootThatIsTheLeaf) {
  const Tensor x = leaf({1});
  const std::vector<Tensor> leaves = {x};
  EXPECT_EQ(gradients(x, leaves)[0].item(), 1);
}

Tensor chain(const Tensor& x, int length) {
  Tensor y = x * 1.0;
  for (int i = 1; i < length; ++i)
    y = y + 0.0;
  return y;
}

// Recursion over as many nodes would run out of stack.
TEST(LongChain, Backward) {
  const Tensor x = leaf({1});
  chain(x, 100'000).backward();
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(LongChain, BackwardThatKeepsTheGraph) {
  const Tensor x = leaf({1});
  backward(chain(x, 100'000), {}, {.retain_graph = true});
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(LongChain, PlainDestruction) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor x = leaf({1});
  {
    const Tensor y = exp(chain(x, 100'000) * x);  // tensors saved on the way, too
  }
  EXPECT_EQ(ledger.current_total(), 8);
}

TEST(LongChain, DestructionAsAThreadEnds) {
  std::thread([] {
    static thread_local Tensor kept;  // destroyed among the thread's other thread_locals
    kept = chain(leaf({1}), 1000);
  }).join();
}

TEST(LongChain, ManyPathsAreWalkedOnce) {
  const Tensor x = leaf({1});
  Tensor y = x * 1.0;
  for (int i = 0; i < 60; ++i)
    y = (y + y) * 0.5;  // 2^60 paths
  y.backward();
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(Memory, ReturnsToTheBaseline) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  {
    const Tensor x = leaf({64, 64});
    const int64_t baseline = ledger.current_total();
    for (int i = 0; i < 3; ++i) {
      const Tensor loss = sum(sigmoid(exp(x * 0.1) * x));
      loss.backward();
      x.set_grad({});
    }
    EXPECT_EQ(ledger.current_total(), baseline);
    { const Tensor never_run = sum(exp(x) * x); }
    EXPECT_EQ(ledger.current_total(), baseline);
    try {
      const Tensor y = exp(x);
      const Tensor bad = sum(y);
      const NoGrad no_grad;
      add_(y, 1.0);
      bad.backward();
      FAIL() << "expected the version check to refuse";
    } catch (const Error&) {
    }
    EXPECT_EQ(ledger.current_total(), baseline) << "after a backward that threw";
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

// A chain of n saved activations: without freeing, backward would hold all n and the gradient in
// flight.
TEST(Memory, SavedTensorsAreFreedAsBackwardGoes) {
  constexpr int64_t length = 20;
  constexpr int64_t bytes = 8 * 10'000;
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor x = leaf({10'000});
  Tensor y = x;
  for (int i = 0; i < length; ++i)
    y = sin(y);  // saves its input
  Tensor loss = sum(y);
  y = {};
  int64_t at_half = 0;
  // A node in the middle of another chain over the same activations would keep them; a hook sees
  // the end instead.
  add_grad_hook(x, [&](const Tensor&) {
    at_half = ledger.current_total();
    return Tensor();
  });
  ledger.reset_peaks();
  const int64_t before = ledger.current_total();
  loss.backward();
  EXPECT_LE(ledger.peak_total(), before + 3 * bytes) << "gradients in flight only";
  EXPECT_LE(at_half, 4 * bytes) << "of " << length << " activations none is left at the end";
}

TEST(Memory, RetainedGraphsKeepTheirTensors) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor x = leaf({1000});
  const Tensor loss = sum(exp(exp(x)));
  const int64_t before = ledger.current_total();
  backward(loss, {}, {.retain_graph = true});
  EXPECT_EQ(ledger.current_total(), before + 8000) << "the leaf's gradient";
}

}  // namespace
}  // namespace weft
