#include "ops/where.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "ops/copy.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;

Tensor mask(std::vector<int64_t> values, const Shape& shape) {
  return to(from_values(values, shape), boolean);
}

TEST(Where, ChoosesBroadcastsAndPromotes) {
  const Tensor condition = mask({1, 0, 1}, {3});
  const Tensor a = from_values(std::vector<float>{1, 2, 3});
  const Tensor b = from_values(std::vector<double>{-1, -2}, {2, 1});
  const Tensor out = where(condition, a, b);
  EXPECT_EQ(out.dtype(), f64);
  EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{1, -1, 3, 1, -2, 3}));
  EXPECT_EQ(where(condition, a, 0.5).to_vector<double>(), (std::vector<double>{1, 0.5, 3}));
  EXPECT_EQ(where(condition, 7, from_values(std::vector<int64_t>{1, 2, 3})).to_vector<int64_t>(),
            (std::vector<int64_t>{7, 2, 7}));
  EXPECT_EQ(where(mask({}, {0}), empty({0}), empty({0})).numel(), 0);
  EXPECT_THROW(where(a, a, a), Error);
  EXPECT_THROW(where(mask({1, 0}, {2}), a, a), Error);
}

TEST(Where, WhatIsNotChosenDoesNotMatter) {
  const Tensor x = from_values(std::vector<float>{NAN, 2});
  x.set_requires_grad();
  const Tensor out = where(mask({0, 1}, {2}), x, 5.0);
  EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{5, 2}));
  backward(out, from_values(std::vector<float>{INFINITY, 3}));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 3}));
}

TEST(Where, Gradcheck) {
  const Tensor condition = mask({1, 0, 1, 0, 0, 1}, {2, 3});
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return where(condition, in[0], in[1]); },
                      {leaf({2, 3}, 1), strided(leaf({2, 1}, 2))}),
            "");
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return masked_fill(in[0], condition, 3.0); },
                      {leaf({2, 3})}),
            "");
}

TEST(MaskedFill, KeepsTheDtypeAndChecksTheMask) {
  const Tensor x = from_values(std::vector<int32_t>{1, 2, 3, 4}, {2, 2});
  const Tensor out = masked_fill(x, mask({1, 0}, {2}), 9.0);
  EXPECT_EQ(out.dtype(), i32);
  EXPECT_EQ(out.to_vector<int64_t>(), (std::vector<int64_t>{9, 2, 9, 4}));
  EXPECT_THROW(masked_fill(from_values(std::vector<float>{1}), mask({1, 0}, {2}), 1.0), Error);
}

}  // namespace
}  // namespace weft
