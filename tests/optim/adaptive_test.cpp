// LARS and LAMB against references in double, and what is theirs alone: norms of whole parameters.
#include "core/parallel.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::error_of;

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

struct LayerwiseReference {
  std::vector<double> p, m, v;

  void lars(const std::vector<double>& g, double lr, double momentum, double decay, double trust,
            bool adapts) {
    const double w = norm_of(p);
    const double d = norm_of(g);
    const double ratio = adapts && w > 0 && d > 0 ? trust * w / (d + decay * w) : 1;
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = momentum * m[i] + lr * ratio * (g[i] + decay * p[i]);
      p[i] -= m[i];
    }
  }

  void lamb(const std::vector<double>& g, int t, double lr, double b1, double b2, double eps,
            double decay, bool adapts) {
    std::vector<double> u(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(b1, t));
      const double variance = v[i] / (1 - std::pow(b2, t));
      u[i] = mean / (std::sqrt(variance) + eps) + decay * p[i];
    }
    const double w = norm_of(p);
    const double d = norm_of(u);
    const double ratio = adapts && w > 0 && d > 0 ? w / d : 1;
    for (size_t i = 0; i < p.size(); ++i)
      p[i] -= lr * ratio * u[i];
  }
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> list = {{40, 7}, {9}, {0, 3}, {}, {2, 3, 5, 7}, {64, 65}, {4, 4}};
  return list;
}

// Matrices, vectors, empty and scalar ones, one in channels-last order, one that starts at zero.
std::vector<Tensor> start(DType dtype) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < shapes().size(); ++i) {
    Tensor tensor = to(test::normal(shapes()[i], i + 1), dtype);
    if (shapes()[i].dims() == 4) tensor = channels_last(tensor);
    if (i + 1 == shapes().size()) tensor = zeros(shapes()[i], {.dtype = dtype});
    tensors.push_back(tensor.set_requires_grad());
  }
  return tensors;
}

template <class Step>
void follow(optim::Optimizer& optimizer, const std::vector<Tensor>& tensors, double tolerance,
            const Step& step_reference) {
  std::vector<LayerwiseReference> references;
  for (const Tensor& tensor : tensors) {
    const auto values = to(tensor.detach(), f64).to_vector<double>();
    references.push_back(
        {values, std::vector<double>(values.size()), std::vector<double>(values.size())});
  }
  for (int step = 1; step <= 20; ++step) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor grad = to(test::normal(shapes()[i], 1000 + static_cast<uint64_t>(step) * 10 + i),
                             tensors[i].dtype());
      tensors[i].set_grad(grad);  // row-major also where the parameter is not
      step_reference(references[i], to(grad, f64).to_vector<double>(), step,
                     shapes()[i].dims() >= 2);
    }
    optimizer.step();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto values = to(tensors[i].detach(), f64).to_vector<double>();
    for (size_t j = 0; j < values.size(); ++j)
      ASSERT_NEAR(values[j], references[i].p[j], tolerance * (1 + std::fabs(values[j])))
          << "tensor " << i << " element " << j;
  }
}

TEST(Lars, FollowsTheAlgorithm) {
  for (const auto& [dtype, tolerance] : {std::pair{f64, 1e-12}, {f32, 1e-4}, {bf16, 0.01}}) {
    for (const bool vectors : {false, true}) {
      for (const double momentum : {0.0, 0.9}) {
        const auto tensors = start(dtype);
        optim::Lars optimizer(tensors, {.lr = 0.5,
                                        .momentum = momentum,
                                        .weight_decay = 0.01,
                                        .trust = 0.02,
                                        .adapt_vectors = vectors});
        follow(optimizer, tensors, tolerance,
               [&](LayerwiseReference& reference, const std::vector<double>& g, int, bool matrix) {
                 reference.lars(g, 0.5, momentum, 0.01, 0.02, matrix || vectors);
               });
      }
    }
  }
}

TEST(Lamb, FollowsTheAlgorithm) {
  for (const auto& [dtype, tolerance] : {std::pair{f64, 1e-12}, {f32, 1e-4}, {bf16, 0.01}}) {
    for (const bool vectors : {false, true}) {
      const auto tensors = start(dtype);
      optim::Lamb optimizer(tensors, {.lr = 0.01,
                                      .beta1 = 0.8,
                                      .beta2 = 0.99,
                                      .eps = 1e-7,
                                      .weight_decay = 0.03,
                                      .adapt_vectors = vectors});
      follow(
          optimizer, tensors, tolerance,
          [&](LayerwiseReference& reference, const std::vector<double>& g, int step, bool matrix) {
            reference.lamb(g, step, 0.01, 0.8, 0.99, 1e-7, 0.03, matrix || vectors);
          });
    }
  }
}

// Options of groups are their own, and a parameter without gradient stays out of it.
TEST(Lamb, OfGroupsAndMissingGradients) {
  const auto both = start(f64);
  const std::vector<Tensor> first{both[0]};
  const std::vector<Tensor> second{both[1], both[4]};
  optim::Lamb optimizer(std::vector<optim::ParameterGroup<optim::LambOptions>>{
      {first, {.lr = 0.1, .weight_decay = 0}}, {second, {.lr = 0.2, .adapt_vectors = true}}});
  both[0].set_grad(test::normal(shapes()[0], 3));
  both[1].set_grad(test::normal(shapes()[1], 4));
  const auto untouched = both[4].to_vector<double>();
  for (size_t i : {0, 1}) {
    const auto before = both[i].to_vector<double>();
    LayerwiseReference reference{before, std::vector<double>(before.size()),
                                 std::vector<double>(before.size())};
    reference.lamb(both[i].grad().to_vector<double>(), 1, i ? 0.2 : 0.1, 0.9, 0.999, 1e-6,
                   i ? 0.01 : 0, true);
    if (i == 1) optimizer.step();
    if (i == 1) {
      const auto after = both[i].to_vector<double>();
      for (size_t j = 0; j < after.size(); ++j)
        EXPECT_NEAR(after[j], reference.p[j], 1e-12);
    }
  }
  EXPECT_EQ(both[4].to_vector<double>(), untouched);
}

TEST(Adaptive, ThreadsChangeNoBit) {
  const auto run = [](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const Tensor big = test::normal({300, 301}, 5).set_requires_grad();
    optim::Lamb lamb(std::vector<Tensor>{big});
    for (uint64_t step = 0; step < 3; ++step) {
      big.set_grad(test::normal({300, 301}, 50 + step));
      lamb.step();
    }
    set_num_threads(before);
    return big.to_vector<float>();
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(Adaptive, OptionsAreChecked) {
  const std::vector<Tensor> tensors{ones({2, 2}).set_requires_grad()};
  EXPECT_NE(error_of([&] { optim::Lars(tensors, {.trust = 0}); }).find("[lars] expected a trust"),
            std::string::npos);
  EXPECT_NE(error_of([&] { optim::Lamb(tensors, {.beta2 = 1}); }).find("[lamb] expected a beta2"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
