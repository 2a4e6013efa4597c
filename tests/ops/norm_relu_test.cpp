// batch_norm_relu: against the operators it is made of, and what those cannot show: what it keeps,
// results past the caches, 16-bit lanes.
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "core/ledger.h"
#include "core/parallel.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace weft {
namespace {

using test::expect_near;
using test::normal;
using Inputs = std::vector<Tensor>;

const BatchNormOptions kTraining{.training = true, .eps = 1e-3};

// x, weight, bias and residual of one problem, and the running statistics.
struct Problem {
  explicit Problem(const Shape& shape, DType dtype = f32, uint64_t seed = 1) {
    const DType wide = dtype == f64 ? f64 : f32;
    const Shape channels{shape[1]};
    x = to(normal(shape, seed, wide), dtype);
    residual = to(normal(shape, seed + 1, wide), dtype);
    g = to(normal(shape, seed + 2, wide), dtype);
    weight = normal(channels, seed + 3, wide);
    bias = normal(channels, seed + 4, wide);
    mean = normal(channels, seed + 5, wide);
    var = test::uniform(channels, 0.5, 2, seed + 6, wide);
  }
  Tensor x, residual, g, weight, bias, mean, var;
};

// The result, then the gradients of x, weight, bias and residual.
template <class F>
Inputs results(const Problem& from, const Tensor& x, const Tensor& residual, F norm) {
  Inputs leaves{x, from.weight, from.bias, residual};
  for (Tensor& leaf : leaves) {
    if (!leaf.defined()) continue;
    leaf = leaf.detach();
    leaf.set_requires_grad();
  }
  const Tensor y = norm(leaves[0], leaves[1], leaves[2], leaves[3]);
  backward(y, from.g);
  Inputs all{y.detach()};
  for (const Tensor& leaf : leaves)
    all.push_back(leaf.defined() ? leaf.grad() : Tensor());
  return all;
}

template <class T>
void expect_same_bits(const Inputs& a, const Inputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << what << " " << i;
    if (a[i].defined()) {
      EXPECT_EQ(a[i].to_vector<T>(), b[i].to_vector<T>()) << what << " " << i;
    }
  }
}

TEST(NormRelu, AgreesWithItsParts) {
  for (const Shape& shape :
       {Shape{5, 8}, Shape{3, 12, 5}, Shape{2, 20, 3, 4}, Shape{70, 4, 9, 5}, Shape{2, 8, 3, 2, 4},
        Shape{300, 36}, Shape{1, 3, 2, 3}, Shape{9, 64, 5, 5}}) {
    for (const DType dtype : {f32, f64}) {
      const Problem p(shape, dtype);
      for (const bool training : {true, false}) {
        const BatchNormOptions how{.training = training, .eps = 1e-3};
        for (const bool add : {true, false}) {
          const auto parts = [&](const Tensor& x, const Tensor& w, const Tensor& b,
                                 const Tensor& z) {
            const Tensor y = batch_norm(x, w, b, clone(p.mean), clone(p.var), how);
            return relu(z.defined() ? y + z : y);
          };
          const auto fused = [&](const Tensor& x, const Tensor& w, const Tensor& b,
                                 const Tensor& z) {
            return batch_norm_relu(x, w, b, clone(p.mean), clone(p.var), how, z);
          };
          const Tensor z = add ? p.residual : Tensor();
          const Inputs expected = results(p, p.x, z, parts);
          for (const bool strided : {false, true}) {
            const Inputs actual = results(p, strided ? test::strided(p.x) : p.x,
                                          strided && add ? test::strided(z) : z, fused);
            for (size_t i = 0; i < expected.size(); ++i) {
              const std::string what = to_string(shape) + " result " + std::to_string(i);
              ASSERT_EQ(actual[i].defined(), expected[i].defined()) << what;
              if (actual[i].defined())
                expect_near(actual[i], expected[i], 100 * test::tolerance_of(dtype), what);
            }
          }
        }
      }
    }
  }
}

TEST(NormRelu, Gradcheck) {
  const Problem p({3, 6, 2, 2}, f64);
  const auto check = [&](const BatchNormOptions& how) {
    const auto f = [&](const Inputs& in) {
      return batch_norm_relu(in[0], in[1], in[2], clone(p.mean), clone(p.var), how, in[3]);
    };
    Inputs in{p.x, p.weight, p.bias, p.residual};
    for (Tensor& leaf : in)
      leaf.set_requires_grad();
    EXPECT_EQ(gradcheck(f, in), "");
    // Each input alone: only what is asked for is computed.
    for (size_t i = 0; i < in.size(); ++i) {
      for (size_t j = 0; j < in.size(); ++j)
        in[j].set_requires_grad(i == j);
      EXPECT_EQ(gradcheck(f, in), "") << i;
    }
    p.x.set_requires_grad();
    EXPECT_EQ(
        gradcheck(
            [&](const Inputs& i) { return batch_norm_relu(i[0], {}, {}, p.mean, p.var, how); },
            {p.x}),
        "");
    p.x.set_requires_grad(false);
  };
  check({.training = false});
  check({.training = true, .momentum = 0});
}

// 16-bit numbers are widened, computed with in f32 and rounded once: the bits of that.
TEST(NormRelu, SixteenBitLanesRoundOnce) {
  for (const DType dtype : {bf16, f16}) {
    for (const Shape& shape : {Shape{3, 24, 5, 7}, Shape{4, 11, 3, 3}}) {
      const Problem narrow(shape, dtype);
      Problem wide(shape, dtype);
      for (Tensor* tensor : {&wide.x, &wide.residual, &wide.g})
        *tensor = to(*tensor, f32);
      const auto fused = [](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& z) {
        return batch_norm_relu(x, w, b, {}, {}, kTraining, z);
      };
      const Inputs actual = results(narrow, narrow.x, narrow.residual, fused);
      Inputs expected = results(wide, wide.x, wide.residual, fused);
      for (const size_t i : {0, 1, 4}) {
        EXPECT_EQ(actual[i].dtype(), dtype);
        expected[i] = to(expected[i], dtype);
      }
      expect_same_bits<float>(actual, expected, to_string(dtype));
    }
  }
}

// Channels-last images of numbers in [-2, 2) from a linear congruential generator: many, fast.
Tensor many(const Shape& shape, uint32_t seed, DType dtype) {
  const Tensor images = empty_strided(shape, channels_last_strides(shape));
  auto* at = images.data<float>();
  for (int64_t i = 0; i < images.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    at[i] = static_cast<float>(seed >> 8) * 0x1p-22f - 2;
  }
  return to(images, dtype);
}

void expect_same_memory(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())), 0) << what;
}

// Results too large for caches are written past them, and long sums have more levels.
TEST(NormRelu, LargeResultsHaveTheSameBits) {
  const int threads = num_threads();
  for (const DType dtype : {f32, bf16}) {
    const Shape shape{2, 32, dtype == f32 ? 260 : 516, 256};
    Problem p({2, 32, 2, 2}, dtype);
    p.x = many(shape, 1, dtype);
    p.residual = many(shape, 2, dtype);
    p.g = many(shape, 3, dtype);
    ASSERT_GE(p.x.bytes(), 16 << 20);
    std::vector<Inputs> runs;
    for (const int count : {1, 3}) {
      set_num_threads(count);
      runs.push_back(
          results(p, p.x, p.residual,
                  [](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& z) {
                    return batch_norm_relu(x, w, b, {}, {}, kTraining, z);
                  }));
    }
    for (size_t i = 0; i < runs[0].size(); ++i)
      expect_same_memory(runs[0][i], runs[1][i], "threads, result " + std::to_string(i));
    // With given statistics an image's results are its own. A half is small enough for the caches.
    const auto of = [&](const Tensor& x, const Tensor& z, const Tensor& g) {
      Problem part = p;
      part.g = g;
      return results(part, x, z,
                     [&](const Tensor& a, const Tensor& w, const Tensor& b, const Tensor& c) {
                       return batch_norm_relu(a, w, b, p.mean, p.var, {}, c);
                     });
    };
    const Inputs whole = of(p.x, p.residual, p.g);
    for (const int64_t image : {0, 1}) {
      const auto cut = [&](const Tensor& t) { return narrow(t, 0, image, 1); };
      const Inputs part = of(cut(p.x), cut(p.residual), cut(p.g));
      for (const size_t i : {0, 1, 4})
        expect_same_memory(cut(whole[i]), part[i], "image, result " + std::to_string(i));
    }
  }
  set_num_threads(threads);
}

// A channel that falls into a packet has the bits of one that does not.
TEST(NormRelu, BitsDoNotDependOnTheChannelsPlace) {
  const Problem p({4, 13, 3, 3});
  const auto fused = [](const Problem& q) {
    return results(q, q.x, q.residual,
                   [&](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& z) {
                     return batch_norm_relu(x, w, b, q.mean, q.var, {}, z);
                   });
  };
  const Inputs whole = fused(p);
  Problem part = p;
  const auto last = [](const Tensor& t, int64_t dim) { return narrow(t, dim, 5, 8); };
  for (Tensor* tensor : {&part.x, &part.residual, &part.g})
    *tensor = last(*tensor, 1);
  for (Tensor* tensor : {&part.weight, &part.bias, &part.mean, &part.var})
    *tensor = last(*tensor, 0);
  const Inputs alone = fused(part);
  for (const size_t i : {0, 1, 4})
    EXPECT_EQ(last(whole[i], 1).to_vector<float>(), alone[i].to_vector<float>()) << i;
}

TEST(NormRelu, NotANumberStays) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(18, 1.0f);
  values[0] = values[17] = nan;
  values[1] = -infinity;
  values[2] = infinity;
  values[3] = -1;
  for (const DType dtype : {f32, bf16, f16}) {
    const Tensor x = to(from_values(values, {2, 9}), dtype).set_requires_grad();
    const Tensor one = to(from_values(std::vector<double>(9, 1)), f32);
    const Tensor zero = to(from_values(std::vector<double>(9, 0)), f32);
    const Tensor y = batch_norm_relu(x, {}, {}, zero, one, {.eps = 0});
    backward(y, to(from_values(std::vector<float>(18, 1), {2, 9}), dtype));
    const auto out = y.to_vector<float>();
    const auto gradient = x.grad().to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(out[i])) << i;
      } else {
        EXPECT_EQ(out[i], values[i] > 0 ? values[i] : 0) << i;
      }
      EXPECT_EQ(gradient[i], values[i] <= 0 ? 0 : 1) << i;
    }
  }
}

TEST(NormRelu, KeepsItsInputAndABitAnElement) {
  const Problem p({4, 64, 16, 16});
  const Tensor x = channels_last(p.x).set_requires_grad();
  const Tensor residual = channels_last(p.residual).set_requires_grad();
  Ledger& ledger = current_ledger();
  const int64_t before = ledger.current_total();
  // What comes after it keeps no result.
  const Tensor sum =
      batch_norm_relu(x, p.weight, p.bias, {}, {}, kTraining, residual) + Tensor(p.residual);
  const int64_t kept = ledger.current_total() - before - sum.bytes();
  EXPECT_GE(kept, x.numel() / 8);
  EXPECT_LT(kept, x.numel() / 8 + 8192);
  {
    const NoGrad no_grad;
    const int64_t here = ledger.current_total();
    const Tensor y = batch_norm_relu(x, p.weight, p.bias, {}, {}, kTraining, residual);
    EXPECT_EQ(ledger.current_total() - here, y.bytes());
  }
}

// A convolution does not keep a result that can be made again, and gives the bits it would have.
TEST(NormRelu, ConvolutionsMakeTheResultAgain) {
  const Problem p({2, 16, 12, 12});
  const Tensor x = channels_last(p.x).set_requires_grad();
  const Tensor kernel = normal({24, 16, 3, 3}, 9, f32).set_requires_grad();
  const Tensor g = normal({2, 24, 10, 10}, 10, f32);
  Ledger& ledger = current_ledger();
  const auto run = [&](auto change, const Tensor& residual, int64_t* kept) {
    x.set_grad({});
    kernel.set_grad({});
    const int64_t before = ledger.current_total();
    Tensor out;
    {
      const Tensor y = change(batch_norm_relu(x, p.weight, p.bias, {}, {}, kTraining, residual));
      out = conv2d(y, kernel);
    }
    *kept = ledger.current_total() - before - out.bytes();
    backward(out, g, {.retain_graph = true});
    backward(out, g);
    return Inputs{x.grad(), kernel.grad()};
  };
  const auto same = [](const Tensor& t) { return t; };
  // Neither of these lets it be made again, though they change nothing.
  const auto copied = [](const Tensor& t) { return clone(t); };
  const auto zero_added = [](const Tensor& t) {
    const NoGrad no_grad;
    add_(t, 0.0);
    return t;
  };
  int64_t lean = 0, full = 0, with_residual = 0, touched = 0;
  const Inputs expected = run(copied, {}, &full);
  expect_same_bits<float>(run(same, {}, &lean), expected, "made again");
  expect_same_bits<float>(run(zero_added, {}, &touched), expected, "changed in place");
  const Tensor none = to(from_values(std::vector<double>(size_t(p.x.numel())), p.x.shape()), f32);
  run(same, none, &with_residual);
  EXPECT_LT(lean, x.bytes() / 2);
  EXPECT_GE(full, x.bytes());
  EXPECT_GE(touched, x.bytes());
  EXPECT_GE(with_residual, x.bytes());
  // A change that matters is what backward sees.
  const auto doubled = [](const Tensor& t) {
    const NoGrad no_grad;
    add_(t, t);
    return t;
  };
  int64_t kept = 0;
  const Inputs twice = run(doubled, {}, &kept);
  expect_near(twice[1], expected[1] * 2.0, 1e-5);
}

TEST(NormRelu, BackwardSeesChangesInPlace) {
  const Problem p({3, 8, 4, 4});
  const auto after = [&](auto change) {
    const Tensor x = clone(p.x);
    const Tensor residual = clone(p.residual);
    const Tensor weight = clone(p.weight).set_requires_grad();
    const Tensor y = batch_norm_relu(x, weight, p.bias, {}, {}, kTraining, residual);
    {
      const NoGrad no_grad;
      change(x, weight, residual, y);
    }
    return test::error_of([&] { backward(y, p.g); });
  };
  EXPECT_NE(after([](const Tensor& x, auto&...) { add_(x, x); }).find("batch_norm_relu"),
            std::string::npos);
  EXPECT_NE(
      after([](const Tensor&, const Tensor& w, auto&...) { add_(w, w); }).find("batch_norm_relu"),
      std::string::npos);
  // Neither of these is kept.
  EXPECT_EQ(after([](const Tensor&, const Tensor&, const Tensor& z, const Tensor& y) {
              add_(z, z);
              add_(y, y);
            }),
            "no error");
}

TEST(NormRelu, NoSamples) {
  const Tensor x = empty({0, 3, 4, 4}).set_requires_grad();
  const Tensor residual = empty({0, 3, 4, 4}).set_requires_grad();
  const Tensor weight = normal({3}, 1, f32).set_requires_grad();
  const Tensor y = batch_norm_relu(x, weight, {}, {}, {}, kTraining, residual);
  EXPECT_EQ(y.shape(), x.shape());
  backward(y, empty(x.shape()));
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(3, 0.0f));
  EXPECT_EQ(residual.grad().shape(), x.shape());
}

TEST(NormRelu, RefusesWhatDoesNotFit) {
  const Problem p({2, 6, 3, 3});
  const auto call = [&](const Tensor& x, const Tensor& residual) {
    return test::error_of(
        [&] { batch_norm_relu(x, p.weight, p.bias, p.mean, p.var, kTraining, residual); });
  };
  EXPECT_EQ(call(p.x, p.residual), "no error");
  const std::string shapes = call(p.x, narrow(p.residual, 0, 0, 1));
  EXPECT_NE(shapes.find("[batch_norm_relu]"), std::string::npos) << shapes;
  EXPECT_NE(shapes.find("[1, 6, 3, 3]"), std::string::npos) << shapes;
  EXPECT_NE(call(p.x, to(p.residual, bf16)).find("bf16"), std::string::npos);
  EXPECT_NE(call(narrow(narrow(narrow(p.x, 0, 0, 1), 2, 0, 1), 3, 0, 1), {})
                .find("more than one value per channel"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
