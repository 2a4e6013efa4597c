// Gradient norms and clipping.
#include "core/parallel.h"
#include "core/safetensors.h"
#include "ops/ops.h"
#include "optim/blocks.h"
#include "optim/norm.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using test::error_of;

struct Set {
  std::vector<Tensor> leaves;
  std::vector<Tensor> before;
};

// Leaves with random gradients; the last has none.
Set make_set(DType dtype) {
  Set set;
  for (const Shape& shape : {Shape{3}, Shape{100, 101}, Shape{0}, Shape{}, Shape{4096}}) {
    const Tensor leaf = to(test::normal(shape, 1), dtype).set_requires_grad();
    leaf.set_grad(to(test::normal(shape, 10 + set.leaves.size()), dtype));
    set.leaves.push_back(leaf);
    set.before.push_back(clone(leaf.grad()));
  }
  set.leaves.push_back(test::leaf({5}));
  return set;
}

double reference_norm(const Set& set) {
  double sum = 0;
  for (const Tensor& g : set.before) {
    for (const double value : g.to_vector<double>())
      sum += value * value;
  }
  return std::sqrt(sum);
}

TEST(Clip, ScalesToTheNormAndReturnsWhatItWas) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Set set = make_set(dtype);
    const double norm = reference_norm(set);
    EXPECT_NEAR(optim::grad_norm(set.leaves), norm, 1e-10 * norm);
    EXPECT_NEAR(optim::clip_grad_norm(set.leaves, 2.0), norm, 1e-10 * norm) << to_string(dtype);
    for (size_t i = 0; i < set.before.size(); ++i) {
      const Tensor expected = to(set.before[i], f64) * (2.0 / (norm + 1e-6));
      test::expect_near(set.leaves[i].grad(), expected,
                        dtype == f64   ? 1e-14
                        : dtype == f32 ? 1e-7
                                       : 4e-3);
    }
    EXPECT_FALSE(set.leaves.back().grad().defined());
  }
}

TEST(Clip, AgreesWithPyTorch) {
  Tensor gradients, expected;
  for (const auto& [name, tensor] :
       load_safetensors(std::string(WEFT_TESTS_DIR) + "/golden/optim.safetensors")) {
    if (name == "gradients") gradients = tensor;
    if (name == "clip_norm") expected = tensor;
  }
  const Tensor leaf = test::leaf({37});
  leaf.set_grad(clone(alias(gradients, {37}, {1})));
  optim::clip_grad_norm(std::vector{leaf}, 1);
  test::expect_near(leaf.grad(), expected, 1e-14);
}

TEST(Clip, LeavesSmallGradientsAlone) {
  const Set set = make_set(f32);
  optim::clip_grad_norm(set.leaves, 1e6);
  for (size_t i = 0; i < set.before.size(); ++i) {
    EXPECT_EQ(set.leaves[i].grad().to_vector<float>(), set.before[i].to_vector<float>());
  }
}

TEST(Clip, NormDependsNotOnThreads) {
  const Set set = make_set(f32);
  const int before = num_threads();
  set_num_threads(1);
  const double one = optim::grad_norm(set.leaves);
  set_num_threads(4);
  EXPECT_EQ(optim::grad_norm(set.leaves), one);
  set_num_threads(before);
}

// What ranks do that hold parts of a parameter: the nodes of each part, then the tree over all of
// them.
TEST(Clip, NormDependsNotOnWhereAParameterIsCut) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const int64_t count : {1, 16, 17, 4096, 5 * 4096 + 17, 100003}) {
      const Tensor leaf = test::normal({count}, 1, dtype).set_requires_grad();
      leaf.set_grad(test::normal({count}, 2, dtype));
      const double whole = optim::grad_norm(std::vector{leaf});
      double naive = 0;
      for (const double value : leaf.grad().to_vector<double>())
        naive += value * value;
      EXPECT_NEAR(whole, std::sqrt(naive), 1e-12 * std::sqrt(naive));
      for (const std::vector<int64_t>& inner :
           {std::vector<int64_t>{16}, {48, 64}, {4096}, {4080, 8208}, {16, 32, 48, 20480}}) {
        std::vector<int64_t> cuts = {0};
        for (const int64_t cut : inner) {
          if (cut < count) cuts.push_back(cut);
        }
        cuts.push_back(count);
        std::vector<optim::Lanes> nodes;
        for (size_t c = 0; c + 1 < cuts.size(); ++c) {
          const Tensor part = narrow(leaf.grad(), 0, cuts[c], cuts[c + 1] - cuts[c]);
          const auto sums =
              optim::norm_node_sums(std::vector<optim::NormPart>{{part, cuts[c], count}});
          EXPECT_EQ(static_cast<int64_t>(sums.size()),
                    optim::norm_nodes(cuts[c], cuts[c + 1], count));
          nodes.insert(nodes.end(), sums.begin(), sums.end());
        }
        EXPECT_EQ(std::sqrt(optim::norm_root(nodes, cuts)), whole) << count << " " << inner[0];
      }
    }
  }
}

TEST(Clip, InfinityNorm) {
  const Set set = make_set(f64);
  double largest = 0;
  for (const Tensor& g : set.before) {
    for (const double value : g.to_vector<double>())
      largest = std::max(largest, std::abs(value));
  }
  EXPECT_EQ(optim::clip_grad_norm(set.leaves, 1, {.norm = INFINITY}), largest);
  EXPECT_NEAR(optim::grad_norm(set.leaves, INFINITY), 1, 1e-6);
}

TEST(Clip, NonFiniteGradientsAreReportedOrNamed) {
  for (const float bad : {NAN, INFINITY}) {
    for (const double norm : {2.0, HUGE_VAL}) {
      const Tensor good = test::normal({3}, 1, f32).set_requires_grad();
      const Tensor leaf = test::normal({100}, 1, f32).set_requires_grad();
      good.set_grad(test::normal({3}, 2, f32));
      leaf.set_grad(test::normal({100}, 3, f32));
      leaf.grad().data<float>()[57] = bad;
      const std::vector<NamedTensor> named = {{"good", good}, {"fc.bias", leaf}};
      const auto before = good.grad().to_vector<float>();
      EXPECT_FALSE(std::isfinite(optim::clip_grad_norm(named, 0.1, {.norm = norm})));
      EXPECT_EQ(good.grad().to_vector<float>(), before);
      const std::string error = error_of(
          [&] { optim::clip_grad_norm(named, 0.1, {.norm = norm, .error_if_nonfinite = true}); });
      EXPECT_NE(error.find("fc.bias"), std::string::npos) << error;
    }
  }
}

TEST(Clip, ByValue) {
  const Tensor leaf = test::leaf({5});
  leaf.set_grad(from_values(std::vector<double>{-3, -0.5, 0, 2, NAN}));
  optim::clip_grad_value(std::vector{leaf}, 1);
  const auto values = leaf.grad().to_vector<double>();
  EXPECT_EQ(std::vector<double>(values.begin(), values.end() - 1),
            (std::vector<double>{-1, -0.5, 0, 1}));
  EXPECT_TRUE(std::isnan(values[4]));
}

TEST(Clip, EdgesAndErrors) {
  EXPECT_EQ(optim::grad_norm(std::vector<Tensor>{}), 0);
  EXPECT_EQ(optim::clip_grad_norm(std::vector{test::leaf({3})}, 1), 0);
  EXPECT_NE(
      error_of([] { optim::clip_grad_norm(std::vector{test::leaf({3})}, -1); }).find("max_norm"),
      std::string::npos);
  EXPECT_NE(error_of([] {
              optim::grad_norm(std::vector{test::leaf({3})}, 3);
            }).find("norm 2 or infinity"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              optim::clip_grad_value(std::vector{test::leaf({3})}, -1);
            }).find("clip_grad_value"),
            std::string::npos);
}

// Blocks hand out every element once, in pieces that begin on block borders, with runs of no
// elements between.
TEST(Blocks, CoverEveryRun) {
  optim::Blocks blocks;
  const std::vector<int64_t> counts = {0, 0, 5, 0, 4096, 4097, 0, 100000, 0};
  for (const int64_t count : counts)
    blocks.add(count);
  const int before = num_threads();
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<std::vector<int>> hits;
    for (const int64_t count : counts)
      hits.emplace_back(static_cast<size_t>(count));
    blocks.parallel([&](size_t run, int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_EQ(begin % optim::Blocks::kSize, 0);
      for (int64_t i = begin; i < end; ++i)
        ++hits[run][static_cast<size_t>(i)];
    });
    for (const auto& run : hits) {
      for (const int hit : run)
        ASSERT_EQ(hit, 1);
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace weft
