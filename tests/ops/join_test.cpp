#include "ops/join.h"

#include "autograd/gradcheck.h"
#include "ops/copy.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using test::error_of;
using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;

TEST(Cat, JoinsAlongAnyDimWhateverTheStrides) {
  const Tensor a = from_values(std::vector<int64_t>{1, 2, 3, 4}, {2, 2});
  const Tensor b = from_values(std::vector<int64_t>{5, 6}, {2, 1});
  const Inputs parts = {strided(a), b};
  EXPECT_EQ(cat(parts, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 5, 3, 4, 6}));
  EXPECT_EQ(cat(parts, -1).shape(), Shape({2, 3}));
  const Inputs twice = {a, a};
  EXPECT_EQ(cat(twice, 0).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(Cat, PromotesAndAcceptsEmptyParts) {
  const Inputs mixed = {empty({0, 2}), from_values(std::vector<double>{1, 2}, {1, 2})};
  const Tensor out = cat(mixed, 0);
  EXPECT_EQ(out.dtype(), f64);
  EXPECT_EQ(out.shape(), Shape({1, 2}));
}

TEST(Cat, KeepsChannelsLast) {
  const Tensor image = empty_strided({1, 3, 2, 2}, channels_last_strides({1, 3, 2, 2}));
  const Inputs two = {image, image};
  EXPECT_TRUE(cat(two, 1).is_channels_last());
}

TEST(Cat, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of([] { cat({}, 0); }), "[cat] expected at least one tensor, got none");
  const Inputs uneven = {empty({2, 3}), empty({3, 3})};
  EXPECT_EQ(error_of([&] { cat(uneven, 1); }),
            "[cat] expected shapes that agree outside dim 1, got [2, 3] and [3, 3]");
  const Inputs scalars = {empty({}), empty({})};
  EXPECT_THROW(cat(scalars, 0), Error);
  const Inputs plain = {empty({2})};
  EXPECT_THROW(cat(plain, 1), Error);
  const Inputs undefined = {Tensor()};
  EXPECT_THROW(cat(undefined, 0), Error);
}

TEST(Cat, Gradcheck) {
  EXPECT_EQ(gradcheck([](const Inputs& in) { return cat(in, 1); },
                      {leaf({2, 3}, 1), strided(leaf({2, 2}, 2))}),
            "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return cat(in, 0); },
                      {leaf({0, 3}, 1), test::repeated({2, 3})}),
            "");
}

TEST(Stack, JoinsAlongANewDim) {
  const Tensor a = from_values(std::vector<int64_t>{1, 2});
  const Tensor b = from_values(std::vector<int64_t>{3, 4});
  const Inputs two = {a, b};
  EXPECT_EQ(stack(two).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(stack(two, -1).to_vector<int64_t>(), (std::vector<int64_t>{1, 3, 2, 4}));
  const Inputs uneven = {a, empty({3}, {.dtype = i64})};
  EXPECT_THROW(stack(uneven), Error);
  EXPECT_THROW(stack(two, 2), Error);
}

TEST(Stack, Gradcheck) {
  EXPECT_EQ(gradcheck([](const Inputs& in) { return stack(in, 1); },
                      {leaf({2, 3}, 1), strided(leaf({2, 3}, 2))}),
            "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return stack(in, 0); }, {leaf({}, 1), leaf({}, 2)}),
            "");
}

TEST(Pad, AddsAndCutsAtTheEdges) {
  const Tensor x = from_values(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(pad(x, {1, 0}, 9).to_vector<int64_t>(), (std::vector<int64_t>{9, 1, 2, 3, 9, 4, 5, 6}));
  EXPECT_EQ(pad(strided(x), {-1, 0, 0, 1}, 7).to_vector<int64_t>(),
            (std::vector<int64_t>{2, 3, 5, 6, 7, 7}));
  EXPECT_EQ(pad(x, {-2, -1}).shape(), Shape({2, 0}));
  EXPECT_EQ(pad(x, {}).to_vector<int64_t>(), x.to_vector<int64_t>());
}

TEST(Pad, RefusesWhatDoesNotFit) {
  const Tensor x = empty({2, 3});
  EXPECT_THROW(pad(x, {1}), Error);
  EXPECT_THROW(pad(x, {0, 0, 0, 0, 1, 1}), Error);
  EXPECT_EQ(error_of([&] {
              pad(x, {-2, -2});
            }),
            "[pad] expected a size of 0 or more in dim 1, got 3 padded by -2 and -2");
  EXPECT_THROW(pad(x, {INT64_MAX, 1}), Error);
  EXPECT_THROW(pad(x, {INT64_MIN, 1}), Error);
}

TEST(Pad, Gradcheck) {
  for (const Tensor& x :
       {leaf({2, 3}), strided(leaf({2, 3})), leaf({0, 3}), test::repeated({2, 3})}) {
    EXPECT_EQ(gradcheck([](const Inputs& in) { return pad(in[0], {1, -1, 2, 0}, 0.5); }, {x}), "");
  }
}

}  // namespace
}  // namespace weft
