// Matrix products against a naive loop in double; what the kernel promises about bits.
#include "ops/matmul.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/gemm.h"
#include "ops/detail/onednn.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::leaf;
using test::normal;
using test::repeated;
using test::strided;
using Inputs = std::vector<Tensor>;
using Floats = std::vector<float>;

// Two dims, no blocking, in f64.
Tensor naive(const Tensor& a, const Tensor& b) {
  const auto left = a.to_vector<double>();
  const auto right = b.to_vector<double>();
  const auto m = static_cast<size_t>(a.size(0)), n = static_cast<size_t>(b.size(1));
  const auto k = static_cast<size_t>(a.size(1));
  std::vector<double> out(m * n, 0.0);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t p = 0; p < k; ++p)
        out[i * n + j] += left[i * k + p] * right[p * n + j];
    }
  }
  return from_values(out, {a.size(0), b.size(1)});
}

Tensor f32_normal(const Shape& shape, uint64_t seed) {
  return normal(shape, seed, f32);
}

// The same values stored column by column.
Tensor column_major(const Tensor& x) {
  return transpose(contiguous(transpose(x, 0, 1)), 0, 1);
}

TEST(Matmul, AgreesWithANaiveLoopInEveryLayout) {
  // Around the edges of tiles (1 to 12 rows, 8 and 16 columns), blocks (96 rows, 256 products) and
  // tasks.
  const std::vector<Shape> sizes = {{1, 1, 1},     {1, 64, 100},  {2, 33, 9},     {3, 40, 300},
                                    {5, 16, 7},    {6, 17, 256},  {7, 96, 257},   {9, 8, 33},
                                    {12, 130, 40}, {13, 5, 64},   {97, 31, 20},   {100, 129, 513},
                                    {200, 24, 1},  {64, 1, 1024}, {128, 256, 128}};
  for (const Shape& size : sizes) {
    const Tensor a = normal({size[0], size[2]}, 1);
    const Tensor b = normal({size[2], size[1]}, 2);
    const Tensor expected = naive(a, b);
    for (const Tensor& left : {a, column_major(a), strided(a)}) {
      for (const Tensor& right : {b, column_major(b), strided(b)}) {
        expect_near(matmul(left, right), expected, 1e-12, to_string(size));
        expect_near(matmul(to(left, f32), to(right, f32)), expected, 2e-4, to_string(size));
      }
    }
  }
}

TEST(Matmul, SixteenBitFloatsAccumulateInF32) {
  for (const DType dtype : {bf16, f16}) {
    const Tensor a = to(f32_normal({17, 300}, 1), dtype);
    const Tensor b = to(f32_normal({300, 19}, 2), dtype);
    const Tensor out = matmul(a, b);
    EXPECT_EQ(out.dtype(), dtype);
    expect_near(out, naive(a, b), dtype == bf16 ? 1.0 / 128 : 1.0 / 1024);
  }
  // 4096 ones: a sum kept in bf16 would stop at 256.
  EXPECT_EQ(matmul(to(ones({1, 4096}), bf16), to(ones({4096, 1}), bf16)).item(), 4096);
}

TEST(Matmul, OneDnnGivesTheSameProducts) {
  const Tensor a = f32_normal({3, 9, 20}, 1);
  const Tensor b = transpose(f32_normal({3, 11, 20}, 2), 1, 2);
  const Tensor bias = f32_normal({11}, 3);
  const Tensor ours = empty({3, 9, 11});
  const Tensor theirs = empty({3, 9, 11});
  detail::multiply("matmul", ours, a, b, bias);
  ASSERT_TRUE(detail::multiply_by_onednn("matmul", theirs, a, b, bias));
  expect_near(theirs, ours, 1e-5);
  const Tensor shared = expand(f32_normal({20, 11}, 4), {3, 20, 11});
  detail::multiply("matmul", ours, a, shared);
  ASSERT_TRUE(detail::multiply_by_onednn("matmul", theirs, a, shared, {}));
  expect_near(theirs, ours, 1e-5);
}

TEST(Matmul, IntegersAreExactAndWrap) {
  const Tensor a = from_values(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = from_values(std::vector<int64_t>{7, 8, 9, 10, 11, 12}, {3, 2});
  EXPECT_EQ(matmul(a, b).to_vector<int64_t>(), (std::vector<int64_t>{58, 64, 139, 154}));
  EXPECT_EQ(matmul(to(a, i32), to(b, i32)).dtype(), i32);
  EXPECT_EQ(matmul(to(a, u8), to(b, u8)).to_vector<int64_t>(),
            (std::vector<int64_t>{58, 64, 139, 154}));
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Tensor large = from_values(std::vector<int64_t>{most}, {1, 1});
  EXPECT_EQ(matmul(large, from_values(std::vector<int64_t>{2}, {1, 1})).item_int(), -2);
}

TEST(Matmul, DtypesPromote) {
  EXPECT_EQ(matmul(ones({2, 2}, {.dtype = f64}), ones({2, 2})).dtype(), f64);
  EXPECT_EQ(matmul(ones({2, 2}, {.dtype = i64}), ones({2, 2})).dtype(), f32);
  EXPECT_EQ(matmul(ones({2, 2}, {.dtype = f16}), ones({2, 2}, {.dtype = bf16})).dtype(), f32);
}

TEST(Matmul, VectorsAreRowsOnTheLeftAndColumnsOnTheRight) {
  const Tensor v = from_values(Floats{1, 2, 3});
  const Tensor m = reshape(arange(6), {3, 2});
  EXPECT_EQ(matmul(v, v).shape(), Shape());
  EXPECT_EQ(matmul(v, v).item(), 14);
  EXPECT_EQ(matmul(v, to(m, f32)).to_vector<float>(), (Floats{16, 22}));
  EXPECT_EQ(matmul(to(transpose(m, 0, 1), f32), v).to_vector<float>(), (Floats{16, 22}));
  EXPECT_EQ(matmul(f32_normal({4, 5, 3}, 1), v).shape(), (Shape{4, 5}));
  EXPECT_EQ(matmul(v, f32_normal({4, 3, 5}, 1)).shape(), (Shape{4, 5}));
}

TEST(Matmul, LeadingDimsBroadcast) {
  const Tensor a = normal({2, 1, 3, 4}, 1);
  const Tensor b = normal({5, 4, 6}, 2);
  const Tensor out = matmul(a, b);
  ASSERT_EQ(out.shape(), (Shape{2, 5, 3, 6}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      expect_near(select(select(out, 0, i), 0, j),
                  naive(select(select(a, 0, i), 0, 0), select(b, 0, j)), 1e-13);
    }
  }
  const Tensor tall = normal({2, 3, 4}, 3);
  const Tensor flat = matmul(tall, select(b, 0, 0));
  for (int64_t i = 0; i < 2; ++i)
    expect_near(select(flat, 0, i), naive(select(tall, 0, i), select(b, 0, 0)), 1e-13);
}

TEST(Matmul, EmptyOperandsAndEmptySums) {
  EXPECT_EQ(matmul(ones({0, 3}), ones({3, 4})).shape(), (Shape{0, 4}));
  EXPECT_EQ(matmul(ones({2, 0}), ones({0, 3})).to_vector<float>(), Floats(6, 0.0f));
  EXPECT_EQ(matmul(to(ones({2, 0}), bf16), to(ones({0, 2}), bf16)).to_vector<float>(),
            Floats(4, 0.0f));
  EXPECT_EQ(matmul(ones({0}), ones({0})).item(), 0);
  EXPECT_EQ(matmul(ones({0, 2, 3}), ones({3, 4})).shape(), (Shape{0, 2, 4}));
  const Tensor a = leaf({2, 0});
  const Tensor b = leaf({0, 3});
  backward(matmul(a, b), ones({2, 3}, {.dtype = f64}));
  EXPECT_EQ(a.grad().shape(), a.shape());
  EXPECT_EQ(b.grad().shape(), b.shape());
}

TEST(Matmul, NanAndInfinityStayInTheirRowsAndColumns) {
  Tensor a = f32_normal({3, 5}, 1);
  a.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();  // row 1
  const auto out = matmul(a, f32_normal({5, 9}, 2)).to_vector<float>();
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 9; ++j)
      EXPECT_EQ(std::isnan(out[i * 9 + j]), i == 1) << i << ", " << j;
  }
}

TEST(Matmul, BitsOfARowDoNotDependOnTheRowsBesideIt) {
  const Tensor a = f32_normal({130, 600}, 1);
  const Tensor b = f32_normal({600, 70}, 2);
  const Tensor whole = matmul(a, b);
  for (const int64_t rows : {1, 2, 3, 4, 6, 8, 11, 12, 13, 97}) {
    const Tensor part = matmul(slice(a, 0, 130 - rows, 130), b);
    EXPECT_EQ(part.to_vector<float>(), slice(whole, 0, 130 - rows, 130).to_vector<float>())
        << rows << " rows";
  }
  for (const int64_t columns : {1, 7, 8, 9, 16, 17, 64}) {
    const Tensor part = matmul(a, slice(b, 1, 0, columns));
    EXPECT_EQ(part.to_vector<float>(), slice(whole, 1, 0, columns).to_vector<float>())
        << columns << " columns";
  }
}

TEST(Matmul, BitsDoNotDependOnLayoutOrThreads) {
  const Tensor a = f32_normal({260, 700}, 1);
  const Tensor b = f32_normal({700, 300}, 2);
  const int threads = num_threads();
  set_num_threads(1);
  const auto expected = matmul(a, b).to_vector<float>();
  const auto batched = matmul(expand(a, {5, 260, 700}), b).to_vector<float>();
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    for (const Tensor& left : {a, column_major(a)}) {
      for (const Tensor& right : {b, column_major(b)}) {
        EXPECT_EQ(matmul(left, right).to_vector<float>(), expected) << count << " threads";
      }
    }
    EXPECT_EQ(contiguous(transpose(matmul(transpose(b, 0, 1), transpose(a, 0, 1)), 0, 1))
                  .to_vector<float>(),
              expected);
    EXPECT_EQ(matmul(expand(a, {5, 260, 700}), b).to_vector<float>(), batched)
        << count << " threads";
  }
  set_num_threads(threads);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batched.begin()));
}

TEST(Matmul, AccumulatesAndAddsBias) {
  // The kernel's own options, also where the result is stored column by column.
  const Tensor a = normal({7, 300}, 1);
  const Tensor b = normal({300, 20}, 2);
  const Tensor start = normal({7, 20}, 3);
  const Tensor bias = normal({20}, 4);
  const auto product = naive(a, b).to_vector<double>();
  for (const bool columns : {false, true}) {
    const Tensor c = columns ? column_major(start) : clone(start);
    detail::gemm<double>({.m = 7,
                          .n = 20,
                          .k = 300,
                          .a = a.data<double>(),
                          .a_row = 300,
                          .a_col = 1,
                          .b = b.data<double>(),
                          .b_row = 20,
                          .b_col = 1,
                          .c = c.data<double>(),
                          .c_row = c.stride(0),
                          .c_col = c.stride(1),
                          .bias = bias.data<double>(),
                          .accumulate = true});
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 0; j < 20; ++j) {
        const double expected = start.data<double>()[i * 20 + j] +
                                product[static_cast<size_t>(i * 20 + j)] + bias.data<double>()[j];
        EXPECT_NEAR(c.data<double>()[i * c.stride(0) + j * c.stride(1)], expected, 1e-12);
      }
    }
  }
}

TEST(Matmul, Gradients) {
  const auto product = [](const Inputs& in) { return matmul(in[0], in[1]); };
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3, 4}, {4, 5}},      {{4}, {4}},          {{4}, {4, 5}},
      {{3, 4}, {4}},         {{2, 3, 4}, {4, 5}}, {{2, 1, 3, 4}, {3, 4, 2}},
      {{3, 4}, {2, 4, 5}},   {{4}, {2, 4, 3}},    {{2, 3, 4}, {4}},
      {{1, 2, 3}, {4, 3, 2}}};
  for (const auto& [a, b] : shapes) {
    EXPECT_EQ(gradcheck(product, {leaf(a, 1), leaf(b, 2)}), "")
        << to_string(a) << " · " << to_string(b);
    EXPECT_EQ(gradcheck(product, {strided(leaf(a, 1)), strided(leaf(b, 2))}), "")
        << to_string(a) << " · " << to_string(b);
  }
  EXPECT_EQ(gradcheck(product, {repeated({3, 4}), leaf({4, 2})}), "");
  EXPECT_EQ(gradcheck(product, {leaf({3, 4}), normal({4, 2})}), "");
  EXPECT_EQ(gradcheck(product, {normal({3, 4}), leaf({4, 2})}), "");
  const Tensor x = leaf({3, 3});
  EXPECT_EQ(gradcheck([](const Inputs& in) { return matmul(in[0], in[0]); }, {x}), "");
}

TEST(Matmul, GradientsHaveTheInputsDtype) {
  const Tensor a = to(f32_normal({2, 3, 4}, 1), bf16).set_requires_grad();
  const Tensor b = f32_normal({4, 5}, 2).set_requires_grad();
  const Tensor out = matmul(a, b);
  EXPECT_EQ(out.dtype(), f32);
  backward(out, ones(out.shape()));
  EXPECT_EQ(a.grad().dtype(), bf16);
  EXPECT_EQ(a.grad().shape(), a.shape());
  EXPECT_EQ(b.grad().dtype(), f32);
}

TEST(Matmul, ErrorsNameShapes) {
  EXPECT_EQ(error_of([] {
              matmul(ones({2, 3}), ones({4, 5}));
            }),
            "[matmul] expected inner sizes that agree, got [2, 3] and [4, 5]");
  EXPECT_NE(error_of([] {
              matmul(ones({2, 3, 4}), ones({3, 4, 5}));
            }).find("[matmul]"),
            std::string::npos);
  EXPECT_NE(error_of([] { matmul(ones({}), ones({3})); }).find("at least one dim"),
            std::string::npos);
  EXPECT_NE(error_of([] { matmul(Tensor(), ones({3})); }).find("[matmul]"), std::string::npos);
  // Sizes whose product passes int64 are refused, not multiplied.
  const Tensor vast = alias(ones({1}), {int64_t{1} << 30, int64_t{1} << 30, 0}, {0, 0, 1});
  EXPECT_NE(error_of([&] { matmul(vast, ones({0, 2})); }), "no error");
}

}  // namespace
}  // namespace weft
