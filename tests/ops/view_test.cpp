// Views against index arithmetic, and what a view must and must not share.
#include "ops/view.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/parts.h"
#include "ops/reduce.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <functional>

namespace weft {
namespace {

using test::counted;
using test::error_of;
using test::leaf;
using test::repeated;
using test::strided;
using Inputs = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

bool shares(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage();
}

TEST(Reshape, KeepsRowMajorOrder) {
  const Tensor x = counted({2, 3, 4});
  for (const Shape& shape : {Shape{6, 4}, Shape{-1}, Shape{2, 12}, Shape{1, 2, 1, 12},
                             Shape{4, 3, 2}, Shape{3, -1, 2}}) {
    EXPECT_EQ(reshape(x, shape).to_vector<int64_t>(), x.to_vector<int64_t>()) << to_string(shape);
    EXPECT_EQ(reshape(strided(x), shape).to_vector<int64_t>(), x.to_vector<int64_t>())
        << to_string(shape);
    EXPECT_TRUE(shares(reshape(x, shape), x));
  }
  EXPECT_EQ(reshape(x, {3, -1}).shape(), Shape({3, 8}));
  EXPECT_EQ(reshape(counted({1, 1}), {}).item_int(), 0);
  EXPECT_EQ(reshape(empty({0, 3}), {3, 0, 5}).shape(), Shape({3, 0, 5}));
}

TEST(Reshape, CopiesOnlyWhereNoStridesFit) {
  const Tensor x =
      permute(counted({4, 2, 3}), {1, 2, 0});  // [2, 3, 4], the first two dims still in line
  EXPECT_TRUE(shares(reshape(x, {6, 4}), x));
  EXPECT_TRUE(shares(reshape(x, {3, 2, 4}), x));
  EXPECT_FALSE(shares(reshape(x, {2, 12}), x));
  EXPECT_EQ(reshape(x, {2, 12}).to_vector<int64_t>(), x.to_vector<int64_t>());
  EXPECT_EQ(reshape(x, {3, 2, 4}).to_vector<int64_t>(), x.to_vector<int64_t>());
  const Tensor wide = expand(counted({3, 1}), {3, 4});
  EXPECT_EQ(reshape(wide, {12}).to_vector<int64_t>(), (Ints{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(Reshape, Errors) {
  const Tensor x = empty({2, 3});
  EXPECT_EQ(error_of([&] { reshape(x, {4}); }),
            "[reshape] expected a shape of 6 elements for [2, 3], got [4]");
  EXPECT_THROW(reshape(x, {-1, -1}), Error);
  EXPECT_THROW(reshape(x, {-2, 3}), Error);
  EXPECT_THROW(reshape(x, {4, -1}), Error);
  EXPECT_THROW(reshape(x, {INT64_MAX, INT64_MAX, -1}), Error);
  EXPECT_THROW(reshape(empty({0}), {0, -1}), Error);
}

TEST(Flatten, MergesDims) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(flatten(x).shape(), Shape({24}));
  EXPECT_EQ(flatten(x, 1).shape(), Shape({2, 12}));
  EXPECT_EQ(flatten(x, 0, 1).shape(), Shape({6, 4}));
  EXPECT_EQ(flatten(full({}, 1.0)).shape(), Shape({1}));
  EXPECT_EQ(flatten(channels_last(reshape(x, {1, 2, 3, 4})), 1).to_vector<int64_t>(),
            x.to_vector<int64_t>());
  EXPECT_THROW(flatten(x, 2, 1), Error);
}

TEST(Permute, ReordersWithoutCopying) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(permute(x, {1, 0}).to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(transpose(x, 0, -1).to_vector<int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(shares(permute(x, {-1, 0}), x));
  EXPECT_EQ(permute(counted({2, 3, 4}), {2, 0, 1}).shape(), Shape({4, 2, 3}));
  EXPECT_EQ(error_of([&] { permute(x, {0, 0}); }), "[permute] expected each dim once, got [0, 0]");
  EXPECT_THROW(permute(x, {0}), Error);
  EXPECT_THROW(transpose(x, 0, 2), Error);
}

TEST(Slice, ClampsAsPythonDoes) {
  const Tensor x = counted({10});
  const auto values = [&](int64_t begin, int64_t end, int64_t step) {
    return slice(x, 0, begin, end, step).to_vector<int64_t>();
  };
  EXPECT_EQ(values(2, 5, 1), (Ints{2, 3, 4}));
  EXPECT_EQ(values(-3, INT64_MAX, 1), (Ints{7, 8, 9}));
  EXPECT_EQ(values(0, -7, 1), (Ints{0, 1, 2}));
  EXPECT_EQ(values(1, 100, 4), (Ints{1, 5, 9}));
  EXPECT_EQ(values(INT64_MIN, INT64_MAX, INT64_MAX), (Ints{0}));
  EXPECT_EQ(values(8, 3, 1), Ints{});
  EXPECT_EQ(values(50, 60, 1), Ints{});
  EXPECT_EQ(slice(strided(counted({3, 4})), 1, 1, 4, 2).to_vector<int64_t>(),
            (Ints{1, 3, 5, 7, 9, 11}));
  EXPECT_THROW(slice(x, 0, 0, 5, 0), Error);
  EXPECT_THROW(slice(x, 1, 0, 5), Error);
  EXPECT_THROW(slice(full({}, 1.0), 0, 0, 1), Error);
}

TEST(SelectAndNarrow, Check) {
  const Tensor x = counted({3, 4});
  EXPECT_EQ(select(x, 0, 1).to_vector<int64_t>(), (Ints{4, 5, 6, 7}));
  EXPECT_EQ(select(x, -1, -1).to_vector<int64_t>(), (Ints{3, 7, 11}));
  EXPECT_EQ(narrow(x, 1, 1, 2).to_vector<int64_t>(), (Ints{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(narrow(x, 0, 3, 0).shape(), Shape({0, 4}));
  EXPECT_EQ(error_of([&] { select(x, 0, 3); }),
            "[select] expected an index in [-3, 3) for dim 0 of [3, 4], got 3");
  EXPECT_THROW(select(x, 0, -4), Error);
  EXPECT_THROW(narrow(x, 0, 2, 2), Error);
  EXPECT_THROW(narrow(x, 0, -1, 1), Error);
  EXPECT_THROW(narrow(x, 0, 1, INT64_MAX), Error);
}

TEST(Expand, RepeatsByStride) {
  const Tensor x = counted({3, 1});
  EXPECT_EQ(expand(x, {2, 3, 2}).to_vector<int64_t>(), (Ints{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(expand(x, {-1, 4}).shape(), Shape({3, 4}));
  EXPECT_EQ(expand(x, {3, 0}).shape(), Shape({3, 0}));
  EXPECT_TRUE(shares(expand(x, {3, 5}), x));
  EXPECT_THROW(expand(x, {4, 1}), Error);
  EXPECT_THROW(expand(x, {3}), Error);
  EXPECT_THROW(expand(x, {-1, 3, 1}), Error);
  EXPECT_THROW(expand(x, {INT64_MAX, 3, 1}), Error);
}

TEST(Squeeze, DropsAndAddsDims) {
  const Tensor x = counted({1, 3, 1, 2});
  EXPECT_EQ(squeeze(x).shape(), Shape({3, 2}));
  EXPECT_EQ(squeeze(x, 2).shape(), Shape({1, 3, 2}));
  EXPECT_EQ(squeeze(x, 1).shape(), x.shape());
  EXPECT_EQ(unsqueeze(x, -1).shape(), Shape({1, 3, 1, 2, 1}));
  EXPECT_EQ(unsqueeze(x, 0).shape(), Shape({1, 1, 3, 1, 2}));
  EXPECT_EQ(unsqueeze(full({}, 1.0), 0).shape(), Shape({1}));
  EXPECT_EQ(squeeze(x).to_vector<int64_t>(), x.to_vector<int64_t>());
  EXPECT_THROW(unsqueeze(x, 6), Error);
}

TEST(Split, CutsIntoParts) {
  const Tensor x = counted({2, 5});
  const auto by_two = split(x, 2, 1);
  ASSERT_EQ(by_two.size(), 3u);
  EXPECT_EQ(by_two[1].to_vector<int64_t>(), (Ints{2, 3, 7, 8}));
  EXPECT_EQ(by_two[2].shape(), Shape({2, 1}));
  const auto by_size = split(x, std::vector<int64_t>{1, 0, 4}, 1);
  EXPECT_EQ(by_size[2].to_vector<int64_t>(), (Ints{1, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(chunk(x, 2, 1)[0].shape(), Shape({2, 3}));
  EXPECT_EQ(chunk(x, 9, 1).size(), 5u);
  EXPECT_THROW(split(x, std::vector<int64_t>{1, 3}, 1), Error);
  EXPECT_THROW(split(x, std::vector<int64_t>{7, -2}, 1), Error);
  EXPECT_THROW(split(x, 0, 1), Error);
  EXPECT_THROW(chunk(x, 0, 1), Error);
}

TEST(Views, GradientsOfPartsArePutTogether) {
  const Tensor whole = test::normal({3, 6}, 5);
  const auto beside = split(whole, std::vector<int64_t>{1, 3, 2}, 1);
  EXPECT_EQ(detail::side_by_side(beside, 1).raw(), whole.raw());
  EXPECT_EQ(detail::side_by_side(beside, 1).strides(), whole.strides());
  std::vector<Tensor> apart = beside;
  apart[1] = contiguous(apart[1]);
  EXPECT_FALSE(detail::side_by_side(apart, 1).defined());
  EXPECT_FALSE(detail::side_by_side(std::vector<Tensor>{beside[1], beside[0]}, 1).defined());
  EXPECT_FALSE(
      detail::side_by_side(std::vector<Tensor>{beside[0], beside[1]}, 1).defined());  // gaps

  const auto gradient = [&](const std::vector<Tensor>& gradients) {
    const Tensor x = leaf({3, 6});
    backward(split(x, std::vector<int64_t>{1, 3, 2}, 1), gradients);
    return x.grad().to_vector<double>();
  };
  EXPECT_EQ(gradient(beside), whole.to_vector<double>());
  EXPECT_EQ(gradient(apart), whole.to_vector<double>());

  const Tensor x = leaf({3, 6});  // a part that nothing came of
  backward(split(x, 3, 1)[1], narrow(whole, 1, 0, 3));
  EXPECT_EQ(narrow(x.grad(), 1, 0, 3).to_vector<double>(), std::vector<double>(9));
  EXPECT_EQ(narrow(x.grad(), 1, 3, 3).to_vector<double>(),
            narrow(whole, 1, 0, 3).to_vector<double>());
}

TEST(Views, WritesShowThrough) {
  const Tensor x = zeros({2, 3});
  fill_(select(x, 1, 1), 5);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 5, 0, 0, 5, 0}));
  EXPECT_EQ(slice(x, 1, 0, 2).version(), x.version());
}

TEST(Views, Gradcheck) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> rows = {
      {"reshape",
       [](const Tensor& x) {
         return reshape(x, {4, 6});
       }},
      {"flatten", [](const Tensor& x) { return flatten(x, 1); }},
      {"permute",
       [](const Tensor& x) {
         return permute(x, {2, 0, 1});
       }},
      {"transpose", [](const Tensor& x) { return transpose(x, 0, 2); }},
      {"slice", [](const Tensor& x) { return slice(x, 1, 0, 3, 2); }},
      {"slice one", [](const Tensor& x) { return slice(x, 2, 1, 3, 5); }},
      {"slice none", [](const Tensor& x) { return slice(x, 2, 3, 3); }},
      {"select", [](const Tensor& x) { return select(x, 1, -1); }},
      {"narrow", [](const Tensor& x) { return narrow(x, 2, 1, 2); }},
      {"expand",
       [](const Tensor& x) {
         return expand(unsqueeze(x, 1), {3, 2, 2, 3, 4});
       }},
      {"squeeze", [](const Tensor& x) { return squeeze(unsqueeze(x, 2)); }},
      {"squeeze dim", [](const Tensor& x) { return squeeze(unsqueeze(x, -1), -1); }},
      {"split", [](const Tensor& x) { return split(x, 3, 2)[1]; }},
      {"chunk", [](const Tensor& x) { return chunk(x, 2, 2)[0]; }},
  };
  for (const auto& [name, op] : rows) {
    for (const Tensor& x : {leaf({2, 3, 4}), strided(leaf({2, 3, 4})), repeated({2, 3, 4})}) {
      EXPECT_EQ(gradcheck([&op = op](const Inputs& in) { return op(in[0]); }, {x}), "") << name;
    }
  }
}

}  // namespace
}  // namespace weft
