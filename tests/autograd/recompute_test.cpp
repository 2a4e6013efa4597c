#include "autograd/recompute.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "autograd/leaf.h"
#include "core/ledger.h"
#include "core/random.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::leaf;
using Span = std::span<const Tensor>;

Tensor recompute1(const std::function<Tensor(Span)>& f, const Tensor& x) {
  return recompute(f, std::span(&x, 1));
}

// The same bits as without recompute: values, gradients of inputs and of captured parameters.
TEST(Recompute, GivesTheSameBits) {
  const Tensor w = leaf({4, 4}, 1);
  const Tensor a = leaf({4, 4}, 2);
  const Tensor b = leaf({4, 4}, 3);
  const auto f = [&](Span in) { return sigmoid(exp(in[0] * w) + sin(in[1]) * w); };
  const auto run = [&](bool again) {
    for (const Tensor& t : {w, a, b})
      t.set_grad({});
    const std::vector<Tensor> ins = {a * 0.5, b};
    const Tensor out = again ? recompute(f, ins) : f(ins);
    sum(out * out).backward();
    return std::vector<std::vector<double>>{out.to_vector<double>(), w.grad().to_vector<double>(),
                                            a.grad().to_vector<double>(),
                                            b.grad().to_vector<double>()};
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Recompute, Gradcheck) {
  const Tensor w = test::normal({3, 2}, 9);
  const auto f = [&](const std::vector<Tensor>& in) {
    return recompute([&](Span x) { return tanh(x[0] * w) * x[1]; }, in);
  };
  EXPECT_EQ(gradcheck(f, {leaf({3, 2}, 1), leaf({2}, 2)}), "");
  EXPECT_EQ(gradcheck(f, {test::strided(leaf({3, 2}, 1)), test::repeated({2})}), "");
}

TEST(Recompute, FreesTheActivationsInBetween) {
  constexpr int64_t bytes = 8 * 10'000;
  const auto deep = [](Span in) {
    Tensor y = in[0];
    for (int i = 0; i < 10; ++i)
      y = sin(y);
    return y;
  };
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor x = leaf({10'000});
  const Tensor direct = deep(std::span(&x, 1));
  EXPECT_GE(ledger.current_total(), 11 * bytes);
  const int64_t before = ledger.current_total();
  const Tensor lean = recompute1(deep, x);
  EXPECT_EQ(ledger.current_total(), before + bytes) << "the result and nothing else";
  sum(lean).backward();
  EXPECT_EQ(ledger.current_total(), before + 2 * bytes) << "the result and the gradient";
}

TEST(Recompute, ACapturedParameterIsCountedOncePerBackward) {
  const Tensor w = leaf({3}, 1);
  const Tensor x = leaf({3}, 2);
  int grad_hooks = 0;
  int accumulated = 0;
  add_grad_hook(w, [&](const Tensor&) {
    ++grad_hooks;
    return Tensor();
  });
  add_accumulated_hook(w, [&](const Tensor&) { ++accumulated; });
  const auto f = [&](Span in) { return in[0] * w * w; };
  // Used by two recomputed blocks and once outside: one sum, one call.
  const Tensor y = recompute1(f, recompute1(f, x)) + w;
  sum(y).backward();
  EXPECT_EQ(grad_hooks, 1);
  EXPECT_EQ(accumulated, 1);
  const Tensor wd = w.detach();
  expect_near(w.grad(), x.detach() * wd * wd * wd * 4.0 + 1.0, 1e-13);
  expect_near(x.grad(), wd * wd * wd * wd, 1e-13);
}

TEST(Recompute, AParameterThatIsAlsoAnInput) {
  const Tensor w = leaf({3}, 1);
  const Tensor y = recompute1([&](Span in) { return in[0] * w; }, w);
  sum(y).backward();
  expect_near(w.grad(), w.detach() * 2.0, 1e-15);
}

TEST(Recompute, TheSameInputTwiceAndUnusedInputs) {
  const Tensor x = leaf({3}, 1);
  const Tensor unused = leaf({3}, 2);
  const std::vector<Tensor> ins = {x, x, unused, Tensor()};
  sum(recompute([](Span in) { return in[0] * in[1]; }, ins)).backward();
  expect_near(x.grad(), x.detach() * 2.0, 1e-15);
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Recompute, InputsThatNeedNoGradient) {
  const Tensor w = leaf({3}, 1);
  const Tensor x = test::normal({3}, 2);
  const Tensor ids = from_values(std::vector<int64_t>{2, 0, 1});
  const std::vector<Tensor> ins = {x, ids};
  const Tensor y = recompute([&](Span in) { return index_select(in[0] * w, 0, in[1]); }, ins);
  sum(y).backward();
  expect_near(w.grad(), x, 1e-15);
  const Tensor plain = recompute1([](Span in) { return in[0] * 2.0; }, x);
  EXPECT_FALSE(plain.requires_grad()) << "nothing to recompute for";
}

TEST(Recompute, FunctionsThatHandTheirInputBack) {
  const Tensor x = leaf({3}, 1);
  sum(recompute1([](Span in) { return in[0]; }, x * 2.0)).backward();
  expect_near(x.grad(), full({3}, 2.0, {.dtype = f64}), 1e-15);
  const Tensor w = leaf({3}, 2);
  sum(recompute1([&](Span) { return w; }, x)).backward();
  expect_near(w.grad(), full({3}, 1.0, {.dtype = f64}), 1e-15);
}

TEST(Recompute, RandomDrawsAreTheSameAndGoOnAsIfRunOnce) {
  const Tensor x = leaf({1000});
  const auto f = [](Span in) { return dropout(exp(in[0]), 0.5, true); };
  const auto run = [&](bool again) {
    manual_seed(11);
    x.set_grad({});
    const Tensor y = again ? recompute1(f, x) : f(std::span(&x, 1));
    const Tensor after_forward = dropout(ones({8}), 0.5, true);
    sum(y).backward();
    const Tensor after_backward = dropout(ones({8}), 0.5, true);
    return std::vector<std::vector<double>>{y.to_vector<double>(), x.grad().to_vector<double>(),
                                            after_forward.to_vector<double>(),
                                            after_backward.to_vector<double>()};
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Recompute, Nests) {
  const Tensor w = leaf({3}, 1);
  const Tensor v = leaf({3}, 2);
  const Tensor x = leaf({3}, 3);
  int runs = 0;
  const auto inner = [&](Span in) {
    ++runs;
    return dropout(sin(in[0] * v), 0.3, true);
  };
  const auto outer = [&](bool again) {
    return [&, again](Span in) {
      const Tensor y = exp(in[0]) * w;
      return (again ? recompute1(inner, y) : inner(std::span(&y, 1))) * in[0];
    };
  };
  const auto run = [&](bool again) {
    manual_seed(4);
    for (const Tensor& t : {w, v, x})
      t.set_grad({});
    const Tensor y = again ? recompute1(outer(true), x) : outer(false)(std::span(&x, 1));
    sum(y).backward();
    return std::vector<std::vector<double>>{y.to_vector<double>(), w.grad().to_vector<double>(),
                                            v.grad().to_vector<double>(),
                                            x.grad().to_vector<double>()};
  };
  const auto nested = run(true);
  EXPECT_EQ(runs, 3) << "forward, in the outer second run, in the inner one";
  EXPECT_EQ(nested, run(false));
}

TEST(Recompute, AnInnerFunctionMayCaptureTheOuterOnesInput) {
  const Tensor x = leaf({3}, 1);
  const Tensor y = recompute1(
      [](Span in) {
        const Tensor own = in[0];
        return recompute1([own](Span inner) { return inner[0] * own; }, sin(own));
      },
      x);
  sum(y).backward();
  const Tensor xd = x.detach();
  expect_near(x.grad(), sin(xd) + xd * cos(xd), 1e-14);
}

TEST(Recompute, ACapturedResultThatNeedsAGradientIsAnError) {
  const Tensor x = leaf({3}, 1);
  const Tensor hidden = exp(x);
  const std::string error =
      error_of([&] { recompute1([&](Span in) { return in[0] * hidden; }, x); });
  EXPECT_NE(error.find("[recompute] expected a function that captures leaves only, got one that "
                       "captures a result of exp"),
            std::string::npos)
      << error;
  const Tensor cut = hidden.detach();
  EXPECT_NO_THROW(recompute1([&](Span in) { return in[0] * cut; }, x));
}

TEST(Recompute, ChangedInputsAndParametersAreNoticed) {
  const Tensor w = leaf({3}, 1);
  const Tensor x = leaf({3}, 2);
  const auto f = [&](Span in) { return in[0] + w; };  // itself would not mind
  const Tensor first = sum(recompute1(f, x));
  {
    const NoGrad no_grad;
    add_(w, 1.0);
  }
  EXPECT_THROW(first.backward(), Error);
  const Tensor second = sum(recompute1(f, x));
  {
    const NoGrad no_grad;
    add_(x, 1.0);
  }
  EXPECT_THROW(second.backward(), Error);
}

TEST(Recompute, TellsWhenItRunsAgain) {
  const Tensor x = leaf({3});
  std::vector<bool> seen;
  const Tensor y = recompute1(
      [&](Span in) {
        seen.push_back(recomputing());
        return exp(in[0]);
      },
      x);
  sum(y).backward();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(recomputing());
}

TEST(Recompute, KeepsTheGraphWhenAsked) {
  const Tensor x = leaf({3});
  const Tensor y = sum(recompute1([](Span in) { return exp(in[0]); }, x));
  backward(y, {}, {.retain_graph = true});
  y.backward();
  expect_near(x.grad(), exp(x.detach()) * 2.0, 1e-14);
  EXPECT_THROW(y.backward(), Error);
}

TEST(Recompute, PutsTheStateBackWhenTheFunctionThrows) {
  const Tensor x = leaf({3});
  manual_seed(8);
  bool armed = false;
  const Tensor y = sum(recompute1(
      [&](Span in) {
        const Tensor drawn = dropout(in[0], 0.5, true);
        if (armed) throw std::runtime_error("again");
        return drawn;
      },
      x));
  const uint32_t stream = random_state().next_stream;
  armed = true;
  EXPECT_THROW(y.backward(), std::runtime_error);
  EXPECT_EQ(random_state().next_stream, stream);
  EXPECT_FALSE(recomputing());
  EXPECT_TRUE(grad_enabled());
}

TEST(Recompute, AFunctionThatGivesAnotherShapeIsAnError) {
  const Tensor x = leaf({3});
  int run = 0;
  const Tensor y =
      sum(recompute1([&](Span in) { return run++ == 0 ? in[0] * 1.0 : sum(in[0]); }, x));
  EXPECT_NE(error_of([&] { y.backward(); }).find("[recompute]"), std::string::npos);
}

TEST(Recompute, WithoutRecordingIsThePlainCall) {
  const Tensor x = leaf({3});
  const NoGrad no_grad;
  int runs = 0;
  const Tensor y = recompute1(
      [&](Span in) {
        ++runs;
        EXPECT_TRUE(in[0].is_same(x));
        return in[0] * 2.0;
      },
      x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace weft
