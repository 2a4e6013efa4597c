// Softmax against a naive loop in double, at hard values, and in its bits.
#include "ops/softmax.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

using test::expect_near;
using test::kInf;
using test::leaf;
using test::normal;
using test::repeated;
using test::strided;
using Inputs = std::vector<Tensor>;
using Doubles = std::vector<double>;

Tensor naive(const Tensor& x, int64_t dim, bool log) {
  const Tensor rows = contiguous(clone(transpose(to(x, f64), dim, -1).detach()));
  const int64_t count = rows.size(-1);
  for (int64_t i = 0; i < rows.numel(); i += count) {
    double* row = rows.data<double>() + i;
    const double most = *std::max_element(row, row + count);
    double sum = 0;
    for (int64_t k = 0; k < count; ++k)
      sum += std::exp(row[k] - most);
    for (int64_t k = 0; k < count; ++k) {
      row[k] = log ? row[k] - most - std::log(sum) : std::exp(row[k] - most) / sum;
    }
  }
  return transpose(rows, dim, -1);
}

Tensor apply(const Tensor& x, int64_t dim, bool log) {
  return log ? log_softmax(x, dim) : softmax(x, dim);
}

TEST(Softmax, AgreesWithANaiveLoop) {
  for (const bool log : {false, true}) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 9, 33}, Shape{2, 1, 8}}) {
      for (const int64_t dim : {0, 1, 2, -1}) {
        const Tensor x = normal(shape);
        expect_near(apply(x, dim, log), naive(x, dim, log), 1e-13);
        expect_near(apply(strided(x), dim, log), naive(x, dim, log), 1e-13);
        const Tensor single = to(x, f32);
        expect_near(apply(single, dim, log), naive(single, dim, log), 1e-6);
        const Tensor half = to(single, bf16);
        expect_near(apply(half, dim, log), naive(half, dim, log), 1e-2);
        EXPECT_EQ(apply(to(single, f16), dim, log).dtype(), f16);
      }
    }
    const Tensor longer = to(normal({2, 9000}), f32);
    expect_near(apply(longer, 1, log), naive(longer, 1, log), 2e-6);
  }
}

TEST(Softmax, HardValues) {
  const Tensor large = to(from_values(Doubles{10000, 10000.5, -10000}), f32);
  expect_near(softmax(large, 0), naive(large, 0, false), 1e-6);
  expect_near(log_softmax(large, 0), naive(large, 0, true), 1e-6);
  // A shift common to all changes nothing, though the numbers are large: f32 holds 10000.5 exactly.
  EXPECT_NEAR(log_softmax(large, 0).to_vector<double>()[1], -std::log1p(std::exp(-0.5)), 1e-6);
  expect_near(softmax(from_values(Doubles{-kInf, 0}), 0), from_values(Doubles{0, 1}), 0);
  for (const double value : softmax(full({3}, -kInf), 0).to_vector<double>())
    EXPECT_TRUE(std::isnan(value));
  for (const double value : log_softmax(full({3}, -kInf), 0).to_vector<double>())
    EXPECT_TRUE(std::isnan(value));
}

TEST(Softmax, EmptyScalarsAndErrors) {
  EXPECT_EQ(softmax(empty({0, 3}), 1).shape(), Shape({0, 3}));
  EXPECT_EQ(softmax(empty({3, 0}), 1).numel(), 0);
  EXPECT_EQ(softmax(full({}, 4.0), 0).item(), 1);
  EXPECT_EQ(log_softmax(full({}, 4.0), 0).item(), 0);
  EXPECT_THROW(softmax(empty({2}), 1), Error);
  EXPECT_THROW(softmax(empty({2}, {.dtype = i64}), 0), Error);
  EXPECT_THROW(softmax(Tensor(), 0), Error);
}

TEST(Softmax, BitsDependOnNeitherStridesNorThreads) {
  const Tensor x = to(normal({40, 301}), f32);
  const int threads = num_threads();
  for (const bool log : {false, true}) {
    const auto expected = apply(x, 1, log).to_vector<float>();
    EXPECT_EQ(apply(strided(x), 1, log).to_vector<float>(), expected);
    for (const int count : {1, 2, 3}) {
      set_num_threads(count);
      EXPECT_EQ(apply(x, 1, log).to_vector<float>(), expected);
    }
    set_num_threads(threads);
    for (int64_t row = 0; row < 3; ++row) {  // a row alone is the row among others
      EXPECT_EQ(apply(select(x, 0, row), 0, log).to_vector<float>(),
                select(apply(x, 1, log), 0, row).to_vector<float>());
    }
  }
}

TEST(Softmax, KeepsChannelsLast) {
  const Tensor x = channels_last(normal({2, 5, 3, 4}));
  EXPECT_TRUE(softmax(x, 1).is_channels_last());
  expect_near(softmax(x, 1), naive(x, 1, false), 1e-13);
}

TEST(Softmax, Gradcheck) {
  for (const bool log : {false, true}) {
    for (const int64_t dim : {0, 1, 2}) {
      const auto f = [=](const Inputs& in) { return apply(in[0], dim, log); };
      for (const Tensor& x :
           {leaf({2, 3, 5}), strided(leaf({2, 3, 5})), repeated({2, 3, 5}), leaf({0, 3, 5})}) {
        EXPECT_EQ(gradcheck(f, {x}), "") << log << dim;
      }
    }
    EXPECT_EQ(gradcheck([=](const Inputs& in) { return apply(in[0], 0, log); }, {leaf({})}), "");
  }
}

}  // namespace
}  // namespace weft
