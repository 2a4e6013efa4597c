#include "ops/loss.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/softmax.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using test::error_of;
using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;

Tensor labels(std::vector<int64_t> values, const Shape& shape) {
  return from_values(values, shape);
}

// The definition, in double: Σ q_c (log Σ exp x - x_c) for one row.
double reference(const std::vector<double>& x, const std::vector<double>& q) {
  double high = -INFINITY;
  for (const double value : x)
    high = std::max(high, value);
  double sum = 0;
  for (const double value : x)
    sum += std::exp(value - high);
  double loss = 0;
  for (size_t c = 0; c < x.size(); ++c)
    loss += q[c] * (high + std::log(sum) - x[c]);
  return loss;
}

TEST(CrossEntropy, AgreesWithItsDefinitionForEveryNumberOfClasses) {
  for (int64_t classes = 1; classes <= 20; ++classes) {
    const Tensor logits = test::normal({3, classes}, static_cast<uint64_t>(classes), f32);
    const Tensor target = labels({0, classes - 1, classes / 2}, {3});
    const auto losses =
        cross_entropy(logits, target, {.reduction = Reduction::none}).to_vector<double>();
    const auto x = logits.to_vector<double>();
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<double> q(static_cast<size_t>(classes), 0);
      q[static_cast<size_t>(target.to_vector<int64_t>()[static_cast<size_t>(row)])] = 1;
      const auto* first = x.data() + row * classes;
      EXPECT_NEAR(losses[static_cast<size_t>(row)], reference({first, first + classes}, q), 2e-6);
    }
  }
}

TEST(CrossEntropy, IsSafeForHugeLogits) {
  const Tensor logits =
      from_values(std::vector<float>{1e30f, -1e30f, 0, 3e38f, 0, -INFINITY}, {2, 3});
  const auto losses = cross_entropy(logits, labels({0, 0}, {2}), {.reduction = Reduction::none})
                          .to_vector<double>();
  EXPECT_EQ(losses, (std::vector<double>{0, 0}));
  const Tensor nan = from_values(std::vector<float>{NAN, 0}, {1, 2});
  EXPECT_TRUE(std::isnan(cross_entropy(nan, labels({1}, {1})).item()));
}

TEST(CrossEntropy, IgnoresAndWeighs) {
  const Tensor logits = test::normal({3, 4}, 2, f32);
  const double all = cross_entropy(logits, labels({1, -100, 2}, {3})).item();
  const double one = cross_entropy(logits, labels({1, -100, -100}, {3})).item();
  const double other = cross_entropy(logits, labels({-100, -100, 2}, {3})).item();
  EXPECT_NEAR(all, (one + other) / 2, 1e-6);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, labels({-100, -100, -100}, {3})).item()));
  EXPECT_EQ(cross_entropy(logits, labels({7, 7, 7}, {3}),
                          {.ignore_index = 7, .reduction = Reduction::sum})
                .item(),
            0);
}

TEST(CrossEntropy, NamesSampleAndValueOfABadTarget) {
  EXPECT_EQ(error_of([] {
              cross_entropy(zeros({2, 3}), labels({0, 3}, {2}));
            }),
            "[cross_entropy] expected class indices in [0, 3) or -100, got 3 for sample 1");
  EXPECT_THROW(cross_entropy(zeros({2, 3}), labels({0}, {1})), Error);
  EXPECT_THROW(cross_entropy(zeros({2, 3}), zeros({2, 2})), Error);
  EXPECT_THROW(cross_entropy(zeros({2, 0}), labels({0, 0}, {2})), Error);
  EXPECT_THROW(cross_entropy(zeros({2, 3}), labels({0, 0}, {2}), {.class_weights = ones({2})}),
               Error);
  EXPECT_THROW(cross_entropy(zeros({2, 3}), labels({0, 0}, {2}), {.label_smoothing = 2}), Error);
  EXPECT_THROW(cross_entropy(labels({0, 0}, {1, 2}), labels({0}, {1})), Error);
}

TEST(CrossEntropy, SixteenBitLogitsGiveAnF32Loss) {
  const Tensor logits = to(test::normal({4, 10}, 3, f32), bf16);
  logits.set_requires_grad();
  const Tensor loss = cross_entropy(logits, labels({1, 2, 3, 4}, {4}));
  EXPECT_EQ(loss.dtype(), f32);
  EXPECT_NEAR(loss.item(),
              cross_entropy(to(logits.detach(), f32), labels({1, 2, 3, 4}, {4})).item(), 1e-6);
  backward(loss);
  EXPECT_EQ(logits.grad().dtype(), bf16);
}

TEST(CrossEntropy, ChangedLogitsAreNoticed) {
  const Tensor logits = test::normal({2, 3}, 1, f32);
  logits.set_requires_grad();
  const Tensor loss = cross_entropy(logits, labels({0, 1}, {2}));
  {
    const NoGrad no_grad;
    fill_(logits, 0.0);
  }
  EXPECT_THROW(backward(loss), Error);
}

TEST(CrossEntropy, ChangedTargetsAreNoticed) {
  const Tensor x = test::leaf({2, 3});
  const auto refused = [](const Tensor& loss, const Tensor& changed) {
    fill_(changed, 1);
    EXPECT_NE(test::error_of([&] { loss.backward(); }).find("changed in place"), std::string::npos);
  };
  const Tensor target = zeros({2}, {.dtype = i64});
  refused(cross_entropy(x, target), target);
  refused(nll_loss(log_softmax(x, 1), target), target);
  const Tensor shares = full({2, 3}, 0.5, {.dtype = f64});
  refused(cross_entropy(x, shares), shares);
  const Tensor weights = full({3}, 0.5, {.dtype = f64});
  refused(cross_entropy(x, target, {.class_weights = weights}), weights);
}

TEST(CrossEntropy, IsTheSameOnAnyNumberOfThreads) {
  const Tensor logits = test::normal({3000, 11}, 4, f32);
  logits.set_requires_grad();
  const Tensor target = randint(0, 11, {3000});
  const auto run = [&](int threads) {
    set_num_threads(threads);
    logits.set_grad({});
    const Tensor loss = cross_entropy(logits, target);
    backward(loss);
    set_num_threads(1);
    auto values = logits.grad().to_vector<float>();
    values.push_back(static_cast<float>(loss.item()));
    return values;
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(CrossEntropy, Gradcheck) {
  const Tensor target = labels({2, -100, 0, 4}, {4});
  const Tensor weights = from_values(std::vector<double>{0.5, 1, 2, 0.1, 1.5});
  for (const Tensor& x : {leaf({4, 5}), strided(leaf({4, 5})), test::repeated({4, 5})}) {
    for (const double smoothing : {0.0, 0.2}) {
      for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
        for (const Tensor& w : {Tensor(), weights}) {
          EXPECT_EQ(gradcheck(
                        [&](const Inputs& in) {
                          return cross_entropy(in[0], target, {w, -100, smoothing, reduction});
                        },
                        {x}),
                    "");
        }
      }
    }
  }
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return cross_entropy(in[0], labels({1}, {})); },
                      {leaf({3})}),
            "");
  EXPECT_EQ(gradcheck(
                [&](const Inputs& in) {
                  return cross_entropy(in[0], labels({0, 2, 1, 1, 2, -100, 0, 1}, {2, 2, 2}));
                },
                {leaf({2, 3, 2, 2})}),
            "");
  EXPECT_EQ(gradcheck(
                [&](const Inputs& in) {
                  return cross_entropy(in[0], labels({}, {0}), {.reduction = Reduction::sum});
                },
                {leaf({0, 3})}),
            "");
}

TEST(CrossEntropy, GradcheckOfProbabilities) {
  for (const double smoothing : {0.0, 0.3}) {
    EXPECT_EQ(gradcheck(
                  [&](const Inputs& in) {
                    return cross_entropy(in[0], in[1], {.label_smoothing = smoothing});
                  },
                  {leaf({3, 4}, 1), leaf({3, 4}, 2)}),
              "");
  }
}

TEST(Nll, Gradcheck) {
  const Tensor weights = from_values(std::vector<double>{0.5, 1, 2, 0.1, 1.5});
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    EXPECT_EQ(
        gradcheck(
            [&](const Inputs& in) {
              return nll_loss(in[0], labels({2, -100, 0, 4}, {4}), {weights, -100, reduction});
            },
            {leaf({4, 5})}),
        "");
  }
  EXPECT_THROW(nll_loss(zeros({1, 2}), labels({2}, {1})), Error);
}

TEST(ElementwiseLosses, Gradcheck) {
  for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
    const Inputs pair = {leaf({3, 4}, 1), strided(leaf({3, 4}, 2))};
    EXPECT_EQ(gradcheck([&](const Inputs& in) { return mse_loss(in[0], in[1], reduction); }, pair),
              "");
    EXPECT_EQ(gradcheck([&](const Inputs& in) { return l1_loss(in[0], in[1], reduction); }, pair),
              "");
    EXPECT_EQ(
        gradcheck([&](const Inputs& in) { return smooth_l1_loss(in[0], in[1], 0.7, reduction); },
                  pair),
        "");
    EXPECT_EQ(
        gradcheck([&](const Inputs& in) { return bce_with_logits(in[0], in[1], {}, reduction); },
                  pair),
        "");
    EXPECT_EQ(gradcheck(
                  [&](const Inputs& in) {
                    return bce_with_logits(in[0], in[1], ones({4}, {.dtype = f64}) * 2.0,
                                           reduction);
                  },
                  pair),
              "");
  }
  EXPECT_THROW(mse_loss(zeros({2}), zeros({3})), Error);
  EXPECT_THROW(smooth_l1_loss(zeros({2}), zeros({2}), -1), Error);
}

TEST(BceWithLogits, IsSafeForHugeLogits) {
  const Tensor x = from_values(std::vector<float>{1000, -1000});
  EXPECT_EQ(bce_with_logits(x, from_values(std::vector<float>{1, 0})).item(), 0);
  EXPECT_EQ(bce_with_logits(x, from_values(std::vector<float>{0, 1})).item(), 1000);
}

}  // namespace
}  // namespace weft
