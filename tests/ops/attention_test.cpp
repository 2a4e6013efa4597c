#include "ops/attention.h"

#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "ops/where.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::leaf;
using Inputs = std::vector<Tensor>;

Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor scores =
      matmul(q, transpose(k, -1, -2)) * (1 / std::sqrt(static_cast<double>(q.size(-1))));
  return matmul(softmax(scores, -1), v);
}

TEST(Attention, EqualsItsComposition) {
  const Tensor q = test::normal({2, 3, 5, 4}, 1);
  const Tensor k = test::normal({2, 3, 7, 4}, 2);
  const Tensor v = test::normal({2, 3, 7, 6}, 3);
  test::expect_near(scaled_dot_product_attention(q, k, v), composed(q, k, v), 1e-13);
  test::expect_near(
      scaled_dot_product_attention(test::strided(q), test::strided(k), test::strided(v)),
      composed(q, k, v), 1e-13);
  // Heads shared by all: leading dims broadcast.
  const Tensor shared = test::normal({1, 1, 7, 4}, 4);
  test::expect_near(scaled_dot_product_attention(q, shared, v),
                    composed(q, expand(shared, {2, 3, 7, 4}), v), 1e-13);
}

TEST(Attention, MergingHeadsCopiesNothing) {
  const Tensor q = test::normal({2, 3, 5, 4}, 1, f32);
  const Tensor out = scaled_dot_product_attention(q, q, q);
  EXPECT_TRUE(transpose(out, 1, 2).is_contiguous());
}

TEST(Attention, MasksAndCausality) {
  const Tensor q = test::normal({1, 4, 3}, 1);
  const Tensor causal =
      to(from_values(std::vector<int64_t>{1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1}, {4, 4}),
         boolean);
  const Tensor by_mask = scaled_dot_product_attention(q, q, q, {.mask = causal});
  test::expect_near(scaled_dot_product_attention(q, q, q, {.causal = true}), by_mask, 0);
  const Tensor added = where(causal, 0.0, full({4, 4}, -INFINITY, {.dtype = f64}));
  test::expect_near(scaled_dot_product_attention(q, q, q, {.mask = added}), by_mask, 1e-15);
  EXPECT_EQ(select(by_mask, 1, 0).to_vector<double>(), select(q, 1, 0).to_vector<double>());
}

TEST(Attention, AQueryThatMayLookNowhereGivesZerosAndNoGradient) {
  const Tensor mask = to(from_values(std::vector<int64_t>{0, 0, 1, 1}, {2, 2}), boolean);
  const Tensor q = leaf({2, 3}, 1);
  const Tensor out = scaled_dot_product_attention(q, q, q, {.mask = mask});
  EXPECT_EQ(select(out, 0, 0).to_vector<double>(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(gradcheck(
                [&](const Inputs& in) {
                  return scaled_dot_product_attention(in[0], in[0], in[0], {.mask = mask});
                },
                {q}),
            "");
  EXPECT_EQ(
      scaled_dot_product_attention(q, empty({0, 3}, {.dtype = f64}), empty({0, 2}, {.dtype = f64}))
          .to_vector<double>(),
      (std::vector<double>{0, 0, 0, 0}));
}

TEST(Attention, Gradcheck) {
  const Inputs qkv = {leaf({2, 1, 3, 4}, 1), test::strided(leaf({2, 2, 5, 4}, 2)),
                      leaf({2, 5, 3}, 3)};
  for (const bool causal : {false, true}) {
    for (const double dropout : {0.0, 0.4}) {
      EXPECT_EQ(gradcheck(
                    [&](const Inputs& in) {
                      return scaled_dot_product_attention(
                          in[0], in[1], in[2],
                          {.causal = causal, .scale = 0.7, .dropout = dropout});
                    },
                    qkv),
                "");
    }
  }
  EXPECT_EQ(gradcheck(
                [](const Inputs& in) {
                  return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]});
                },
                {leaf({2, 3, 4}, 1), leaf({2, 5, 4}, 2), leaf({2, 5, 4}, 3), leaf({3, 5}, 4)}),
            "");
  EXPECT_EQ(
      gradcheck([](const Inputs& in) { return scaled_dot_product_attention(in[0], in[0], in[0]); },
                {leaf({0, 3, 4})}),
      "");
}

// True on and below the diagonal.
Tensor lower_triangle(int64_t rows, int64_t columns) {
  std::vector<int64_t> looks(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      looks[static_cast<size_t>(i * columns + j)] = j <= i;
  }
  return to(from_values(looks, {rows, columns}), boolean);
}

// More queries than a block has; q, k and v as parts of one product, and apart.
TEST(Attention, BlocksOfQueries) {
  const int64_t length = 150;
  const Tensor whole = leaf({2, length, 3 * 8}, 1);
  const auto head = [&](const Tensor& x) { return transpose(reshape(x, {2, length, 2, 4}), 1, 2); };
  const Tensor looks = lower_triangle(length, length);
  const Tensor g = test::normal({2, 2, length, 4}, 2);
  const auto gradient = [&](const AttentionOptions& options, bool apart) {
    whole.set_grad(Tensor());
    std::vector<Tensor> parts = split(whole, 8, 2);
    if (apart) parts[1] = parts[1] * 1;
    backward(scaled_dot_product_attention(head(parts[0]), head(parts[1]), head(parts[2]), options),
             g);
    return clone(whole.grad());
  };
  const Tensor causal = gradient({.causal = true}, false);
  test::expect_near(causal, gradient({.mask = looks}, true), 1e-13);
  test::expect_near(causal, gradient({.causal = true}, true), 0);
  // Fewer keys than queries, and more.
  for (const int64_t keys : {70, 200}) {
    const Tensor kv = test::normal({2, 2, keys, 4}, 3);
    const Tensor q = test::normal({2, 2, length, 4}, 4);
    const Tensor sees = lower_triangle(length, keys);
    test::expect_near(scaled_dot_product_attention(q, kv, kv, {.causal = true}),
                      scaled_dot_product_attention(q, kv, kv, {.mask = sees}), 1e-13);
  }
}

TEST(Attention, SixteenBitAndThreads) {
  const Tensor q = test::normal({3, 4, 33, 16}, 1, f32);
  const Tensor half = scaled_dot_product_attention(to(q, bf16), to(q, bf16), to(q, bf16));
  EXPECT_EQ(half.dtype(), bf16);
  test::expect_near(half, scaled_dot_product_attention(q, q, q), 0.03);
  const auto on = [&](int threads) {
    set_num_threads(threads);
    auto values = scaled_dot_product_attention(q, q, q).to_vector<float>();
    set_num_threads(1);
    return values;
  };
  EXPECT_EQ(on(1), on(3));
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Tensor q = zeros({2, 3});
  EXPECT_THROW(scaled_dot_product_attention(q, zeros({2, 4}), q), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, q, zeros({3, 3})), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, to(q, f64), q), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, q, q, {.mask = to(zeros({3, 3}), boolean)}), Error);
  EXPECT_THROW(scaled_dot_product_attention(q, q, q, {.dropout = -1}), Error);
  EXPECT_THROW(scaled_dot_product_attention(zeros({3}), q, q), Error);
}

}  // namespace
}  // namespace weft
