// Normalisations against their formulas in double, with statistics that are hard to keep, and
// gradients.
#include "ops/norm.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace weft {
namespace {

using test::expect_near;
using test::normal;
using Inputs = std::vector<Tensor>;
using Doubles = std::vector<double>;

// The formula all four share. `set_of(i)` names the run of values that element i (row-major) is
// normalised with, `channel_of(i)` the weight that scales it.
struct Formula {
  std::function<int64_t(int64_t)> set_of, channel_of;
  bool centred = true;
  double eps = 1e-5;
};

struct Normed {
  Tensor y, dx;
  Doubles dw, db, mean, var;
};

Normed naive(const Formula& f, const Tensor& x, const Doubles& weight, const Doubles& bias,
             const Tensor& g) {
  const Doubles xs = x.to_vector<double>();
  const Doubles gs = g.to_vector<double>();
  int64_t sets = 0;
  for (int64_t i = 0; i < x.numel(); ++i)
    sets = std::max(sets, f.set_of(i) + 1);
  const auto size = static_cast<size_t>(sets);
  Doubles count(size), mean(size), var(size), sum_g(size), sum_gx(size);
  const auto each = [&](auto visit) {
    for (size_t i = 0; i < xs.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      visit(i, static_cast<size_t>(f.set_of(at)), static_cast<size_t>(f.channel_of(at)));
    }
  };
  each([&](size_t, size_t s, size_t) { count[s] += 1; });
  if (f.centred) each([&](size_t i, size_t s, size_t) { mean[s] += xs[i] / count[s]; });
  each([&](size_t i, size_t s, size_t) {
    var[s] += (xs[i] - mean[s]) * (xs[i] - mean[s]) / count[s];
  });
  const auto normed = [&](size_t i, size_t s) {
    return (xs[i] - mean[s]) / std::sqrt(var[s] + f.eps);
  };
  Doubles y(xs.size()), dx(xs.size()), dw(weight.size()), db(weight.size());
  each([&](size_t i, size_t s, size_t c) {
    y[i] = normed(i, s) * weight[c] + bias[c];
    dw[c] += gs[i] * normed(i, s);
    db[c] += gs[i];
    sum_g[s] += gs[i] * weight[c] / count[s];
    sum_gx[s] += gs[i] * weight[c] * normed(i, s) / count[s];
  });
  each([&](size_t i, size_t s, size_t c) {
    const double centre = f.centred ? sum_g[s] : 0;
    dx[i] = (gs[i] * weight[c] - centre - normed(i, s) * sum_gx[s]) / std::sqrt(var[s] + f.eps);
  });
  return {from_values(y, x.shape()), from_values(dx, x.shape()), dw, db, mean, var};
}

int64_t positions(const Shape& shape) {
  int64_t count = 1;
  for (int d = 2; d < shape.dims(); ++d)
    count *= shape[d];
  return count;
}
Formula batch_formula(const Shape& shape) {
  const auto channel = [p = positions(shape), c = shape[1]](int64_t i) { return i / p % c; };
  return {channel, channel};
}
Formula group_formula(const Shape& shape, int64_t groups) {
  const int64_t run = shape[1] / groups * positions(shape);
  return {[run](int64_t i) { return i / run; }, batch_formula(shape).channel_of};
}
Formula row_formula(int64_t length, bool centred) {
  return {[length](int64_t i) { return i / length; }, [length](int64_t i) { return i % length; },
          centred};
}

// `norm(x, weight, bias)` agrees with the formula in values and gradients; bias may take no part.
template <class F>
void expect_agrees(const std::string& what, const Shape& shape, const Shape& parameters,
                   Formula formula, bool has_bias, double eps, F norm) {
  formula.eps = eps;
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const DType wide = dtype == f64 ? f64 : f32;
    const Tensor x = to(normal(shape, 1, wide), dtype);
    const Tensor g = to(normal(shape, 2, wide), dtype);
    for (const DType parameter_dtype : {wide, dtype}) {
      const Tensor weight = to(normal(parameters, 3, wide), parameter_dtype);
      const Tensor bias = to(normal(parameters, 4, wide), parameter_dtype);
      const Doubles biases =
          has_bias ? bias.to_vector<double>() : Doubles(static_cast<size_t>(bias.numel()));
      const Normed expected = naive(formula, x, weight.to_vector<double>(), biases, g);
      for (const int layout : {0, 1, 2}) {
        if (layout == 1 && shape.dims() != 4) continue;
        if (layout == 2 && dtype != wide) continue;
        const Tensor in = (layout == 0   ? clone(x)
                           : layout == 1 ? clone(channels_last(x))
                                         : test::strided(x))
                              .set_requires_grad();
        const Tensor w = clone(weight).set_requires_grad();
        const Tensor b = clone(bias).set_requires_grad();
        const Tensor y = norm(in, w, b);
        EXPECT_EQ(y.dtype(), dtype) << what;
        expect_near(y, expected.y, 4 * test::tolerance_of(dtype), what);
        backward(y, g);
        expect_near(in.grad(), expected.dx, 10 * test::tolerance_of(dtype), what);
        const double sums = 10 * test::tolerance_of(parameter_dtype) *
                            std::sqrt(static_cast<double>(x.numel() / weight.numel()));
        EXPECT_EQ(w.grad().dtype(), parameter_dtype) << what;
        expect_near(w.grad(), from_values(expected.dw, parameters), sums, what);
        if (has_bias) expect_near(b.grad(), from_values(expected.db, parameters), sums, what);
      }
    }
  }
}

const std::vector<Shape>& channel_shapes() {
  static const std::vector<Shape> list{{5, 8},          {3, 12, 5}, {2, 20, 3, 4}, {70, 4, 9, 5},
                                       {2, 8, 3, 2, 4}, {300, 36},  {1, 4, 2, 3},  {2, 4, 1, 1}};
  return list;
}

TEST(Norm, BatchNormAgreesWithTheFormula) {
  for (const Shape& shape : channel_shapes()) {
    expect_agrees(to_string(shape), shape, {shape[1]}, batch_formula(shape), true, 1e-3,
                  [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return batch_norm(x, w, b, {}, {}, {.training = true, .eps = 1e-3});
                  });
  }
}

TEST(Norm, GroupNormAgreesWithTheFormula) {
  for (const Shape& shape : channel_shapes()) {
    for (const int64_t groups : {1, 2, 4}) {
      expect_agrees(to_string(shape), shape, {shape[1]}, group_formula(shape, groups), true, 1e-3,
                    [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                      return group_norm(x, groups, w, b, 1e-3);
                    });
    }
  }
}

TEST(Norm, LayerAndRmsNormAgreeWithTheFormula) {
  struct NormCase {
    Shape x, normalized;
  };
  for (const NormCase& c :
       {NormCase{{5, 8}, {8}}, NormCase{{3, 4, 7}, {4, 7}}, NormCase{{130, 77}, {77}},
        NormCase{{2, 3, 1}, {1}}, NormCase{{33}, {33}}, NormCase{{2, 5, 4, 40}, {40}}}) {
    const int64_t length = c.normalized.numel();
    expect_agrees("layer " + to_string(c.x), c.x, c.normalized, row_formula(length, true), true,
                  1e-3, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return layer_norm(x, c.normalized, w, b, 1e-3);
                  });
    expect_agrees("rms " + to_string(c.x), c.x, c.normalized, row_formula(length, false), false,
                  1e-3, [&](const Tensor& x, const Tensor& w, const Tensor&) {
                    return rms_norm(x, c.normalized, w, 1e-3);
                  });
  }
}

TEST(Norm, Gradcheck) {
  const Tensor mean = normal({6}, 5);
  const Tensor var = test::uniform({6}, 0.5, 2, 6);
  for (const Shape& shape : {Shape{4, 6}, Shape{2, 6, 3}, Shape{2, 6, 3, 2}}) {
    const Tensor x = test::leaf(shape, 1);
    const Tensor weight = test::leaf({6}, 2);
    const Tensor bias = test::leaf({6}, 3);
    const auto check = [&](auto norm) {
      const auto f = [&](const Inputs& in) { return norm(in[0], in[1], in[2]); };
      EXPECT_EQ(gradcheck(f, {x, weight, bias}), "") << to_string(shape);
      EXPECT_EQ(gradcheck(f, {test::strided(x), test::strided(weight), test::repeated({6})}), "")
          << to_string(shape);
    };
    check([&](const Tensor& a, const Tensor& w, const Tensor& b) {
      return batch_norm(a, w, b, {}, {}, {.training = true});
    });
    check([&](const Tensor& a, const Tensor& w, const Tensor& b) {
      return batch_norm(a, w, b, mean, var);
    });
    check(
        [&](const Tensor& a, const Tensor& w, const Tensor& b) { return group_norm(a, 3, w, b); });
    const auto bare = [&](auto norm) {
      EXPECT_EQ(gradcheck([&](const Inputs& in) { return norm(in[0]); }, {x}), "")
          << to_string(shape);
    };
    bare([&](const Tensor& a) { return batch_norm(a, {}, {}, {}, {}, {.training = true}); });
    bare([&](const Tensor& a) { return group_norm(a, 2); });
    bare([&](const Tensor& a) { return layer_norm(a, {a.size(-1)}); });
    bare([&](const Tensor& a) { return rms_norm(a, {a.size(-1)}); });
  }
  const Tensor x = test::leaf({3, 2, 6}, 1);
  for (const Tensor& in : {x, test::strided(x)}) {
    EXPECT_EQ(gradcheck(
                  [](const Inputs& i) {
                    return layer_norm(i[0], {2, 6}, i[1], i[2]);
                  },
                  {in, test::leaf({2, 6}, 2), test::leaf({2, 6}, 3)}),
              "");
    EXPECT_EQ(gradcheck([](const Inputs& i) { return rms_norm(i[0], {6}, i[1]); },
                        {in, test::leaf({6}, 2)}),
              "");
  }
}

// Only what is asked for is computed, and a frozen input leaves the parameters' gradients right.
TEST(Norm, FrozenInputs) {
  const Tensor x = normal({4, 6, 2, 2}, 1);
  const Tensor weight = test::leaf({6}, 2);
  const auto f = [&](const Inputs& in) {
    return batch_norm(x, in[0], {}, {}, {}, {.training = true});
  };
  EXPECT_EQ(gradcheck(f, {weight}), "");
  const Tensor bias = test::leaf({2}, 3);
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return layer_norm(x, {2}, {}, in[0]); }, {bias}), "");
}

TEST(Norm, BatchNormMovesTheRunningStatistics) {
  for (const DType dtype : {f32, f64}) {
    const Tensor x = normal({7, 5, 3, 2}, 1, dtype);
    const Tensor mean = normal({5}, 2, dtype);
    const Tensor var = test::uniform({5}, 0.5, 2, 3, dtype);
    const Doubles mean_before = mean.to_vector<double>();
    const Doubles var_before = var.to_vector<double>();
    const Normed batch = naive(batch_formula(x.shape()), x, Doubles(5, 1), Doubles(5, 0), x);
    const uint32_t version = mean.version();
    batch_norm(x, {}, {}, mean, var, {.training = true, .momentum = 0.3});
    EXPECT_NE(mean.version(), version);
    for (size_t c = 0; c < 5; ++c) {
      EXPECT_NEAR(mean.to_vector<double>()[c], 0.7 * mean_before[c] + 0.3 * batch.mean[c], 1e-6);
      EXPECT_NEAR(var.to_vector<double>()[c], 0.7 * var_before[c] + 0.3 * batch.var[c] * 42 / 41,
                  1e-6);
    }
    const Tensor y = batch_norm(x, {}, {}, mean, var);
    EXPECT_NEAR(y.to_vector<double>()[0],
                (x.to_vector<double>()[0] - mean.to_vector<double>()[0]) /
                    std::sqrt(var.to_vector<double>()[0] + 1e-5),
                1e-5);
  }
}

// Values whose spread is a thousandth of their mean: sums of squares would lose the variance, and
// so would deviations from the first row where that lies far from the others.
TEST(Norm, KeepsTheVarianceOfValuesFarFromZero) {
  const Shape shape{4000, 9};
  const Doubles noise = normal(shape, 1).to_vector<double>();
  for (const float first : {1000.0f, 0.0f}) {
    std::vector<float> values;
    for (size_t i = 0; i < noise.size(); ++i)
      values.push_back(i < 9 ? first : 1000 + static_cast<float>(noise[i]));
    const Tensor x = from_values(values, shape);
    const Doubles ones(9, 1), zeros(9, 0);
    const Normed expected = naive(batch_formula(shape), x, ones, zeros, x);
    expect_near(batch_norm(x, {}, {}, {}, {}, {.training = true}), expected.y, 2e-4);

    const Tensor row = from_values(std::vector<float>(values.begin(), values.begin() + 1000));
    const Normed layer =
        naive(row_formula(1000, true), row, Doubles(1000, 1), Doubles(1000, 0), row);
    expect_near(layer_norm(row, {1000}), layer.y, 1e-3);
  }
}

TEST(Norm, BitsDoNotDependOnThreads) {
  const int threads = num_threads();
  const Tensor x = normal({40, 24, 17, 9}, 1, f32).set_requires_grad();
  const Tensor weight = normal({24}, 2, f32).set_requires_grad();
  const Tensor bias = normal({24}, 3, f32).set_requires_grad();
  const Tensor row_weight = normal({9}, 4, f32).set_requires_grad();
  const Tensor g = normal(x.shape(), 5, f32);
  const std::vector<std::function<Tensor()>> norms{
      [&] { return batch_norm(x, weight, bias, {}, {}, {.training = true}); },
      [&] { return group_norm(x, 6, weight, bias); },
      [&] { return layer_norm(x, {9}, row_weight); },
      [&] { return rms_norm(x, {9}, row_weight); },
  };
  for (const auto& norm : norms) {
    std::vector<std::vector<float>> results;
    for (const int count : {1, 3}) {
      set_num_threads(count);
      for (const Tensor& leaf : {x, weight, bias, row_weight})
        leaf.set_grad({});
      const Tensor y = norm();
      backward(y, g);
      results.push_back(y.to_vector<float>());
      for (const Tensor& leaf : {x, weight, bias, row_weight})
        results.push_back(leaf.grad().defined() ? leaf.grad().to_vector<float>()
                                                : std::vector<float>{});
    }
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(results[i], results[5 + i]);
  }
  set_num_threads(threads);
}

TEST(Norm, NoSamples) {
  const Tensor x = empty({0, 3, 4, 4}).set_requires_grad();
  const Tensor weight = normal({3}, 1, f32).set_requires_grad();
  const Tensor mean = normal({3}, 2, f32);
  const Tensor var = test::uniform({3}, 1, 2, 3, f32);
  const auto before = mean.to_vector<float>();
  const Tensor y = batch_norm(x, weight, {}, mean, var, {.training = true});
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(mean.to_vector<float>(), before);
  backward(y, empty(x.shape()));
  EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(3, 0.0f));
  EXPECT_EQ(group_norm(x, 3, weight).numel(), 0);

  const Tensor row_weight = normal({4}, 4, f32).set_requires_grad();
  backward(layer_norm(x, {4}, row_weight), empty(x.shape()));
  EXPECT_EQ(row_weight.grad().to_vector<float>(), std::vector<float>(4, 0.0f));
}

TEST(Norm, RefusesWhatDoesNotFit) {
  const auto has = [](const auto& body, const char* part) {
    const std::string text = test::error_of(body);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Tensor x = normal({2, 6, 3, 3}, 1, f32);
  const Tensor six = test::uniform({6}, 1, 2, 2, f32);
  const Tensor five = test::uniform({5}, 1, 2, 2, f32);
  const BatchNormOptions training{.training = true};
  // PyTorch's message for a last batch of one sample; with one pixel more there is something to
  // normalise.
  has(
      [&] {
        batch_norm(normal({1, 6}), {}, {}, {}, {}, training);
      },
      "more than one value per channel");
  has([&] { batch_norm(normal({1, 6, 1, 1}), {}, {}, {}, {}, training); }, "[1, 6, 1, 1]");
  EXPECT_EQ(test::error_of([&] {
              batch_norm(normal({1, 6, 1, 2}), {}, {}, {}, {}, training);
            }),
            "no error");
  EXPECT_EQ(test::error_of([&] {
              batch_norm(normal({1, 6}, 1, f32), {}, {}, six, six);
            }),
            "no error");
  has([&] { batch_norm(x, {}, {}, {}, {}); }, "running statistics");
  has([&] { batch_norm(x, {}, {}, six, {}); }, "running statistics");
  has([&] { batch_norm(x, five, {}, six, six); }, "a weight of shape [6]");
  has([&] { batch_norm(x, {}, {}, six, five); }, "a running variance of shape [6]");
  has([&] { batch_norm(normal({6}), {}, {}, six, six); }, "[6]");
  has([&] { batch_norm(empty({2, 6}, {.dtype = i64}), {}, {}, six, six); }, "floating");
  has([&] { batch_norm({}, {}, {}, six, six); }, "undefined");
  has([&] { batch_norm(x, {}, {}, six, six, {.momentum = 2}); }, "momentum");
  has([&] { batch_norm(x, {}, {}, six, six, {.eps = -1}); }, "eps");
  has([&] { group_norm(x, 4); }, "divides the 6 channels");
  has([&] { group_norm(x, 0); }, "got 0");
  has([&] { layer_norm(x, {4}); }, "normalized shape [4]");
  has([&] { layer_norm(x, {}); }, "normalized shape []");
  has([&] { layer_norm(x, {3, 3}, five); }, "a weight of shape [3, 3]");
  has([&] { rms_norm(x, {2, 6, 3, 3, 1}); }, "[2, 6, 3, 3, 1]");
  has([&] { layer_norm(empty({2, 0}), {0}); }, "[0]");
}

}  // namespace
}  // namespace weft
