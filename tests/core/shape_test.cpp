#include "core/shape.h"

#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace weft {
namespace {

using test::error_of;

TEST(Shape, HoldsUpToEightDims) {
  Shape shape = Shape::filled(8, 2);
  EXPECT_EQ(shape.numel(), 256);
  EXPECT_THROW(shape.push_back(2), Error);
  EXPECT_EQ(shape, Shape::filled(8, 2)) << "a refused push must change nothing";
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
  EXPECT_THROW(shape.resize(-1, 0), Error);
}

TEST(Shape, InsertsAndErases) {
  Shape shape{2, 3};
  shape.insert(0, 7);
  shape.insert(3, 9);
  shape.insert(2, 5);
  EXPECT_EQ(shape, (Shape{7, 2, 5, 3, 9}));
  shape.erase(0);
  shape.erase(3);
  EXPECT_EQ(shape, (Shape{2, 5, 3}));
  EXPECT_NE(shape, (Shape{2, 5}));
  EXPECT_EQ(to_string(shape), "[2, 5, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{4, 0, 5}).numel(), 0);
  EXPECT_EQ(checked_numel({3, 4}, 8, "op"), 12);
  EXPECT_EQ(checked_numel({}, 8, "op"), 1);
  EXPECT_EQ(checked_numel({0, int64_t{1} << 50}, 4, "op"), 0);
}

TEST(Shape, RefusesSizesThatOverflow) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(checked_numel({-1}, 1, "op"), Error);
  EXPECT_THROW(checked_numel({huge, 2}, 1, "op"), Error);
  EXPECT_THROW(checked_numel({huge}, 2, "op"), Error);
  EXPECT_THROW(checked_numel({0, huge, 2}, 1, "op"), Error) << "a zero must not hide the overflow";
  EXPECT_EQ(checked_numel({huge}, 1, "op"), huge);
  EXPECT_EQ(error_of([] {
              checked_numel({2, -3}, 1, "op");
            }),
            "[op] expected sizes of 0 or more, got [2, -3]");
}

TEST(Shape, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Strides{});
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (Strides{4, 4, 1}));
}

TEST(Shape, ChannelsLastStrides) {
  EXPECT_EQ(channels_last_strides({2, 3, 4, 5}), (Strides{60, 1, 15, 3}));
  EXPECT_THROW(channels_last_strides({3, 4, 5}), Error);
}

TEST(Shape, MemoryOrderFallsByStride) {
  const auto order = memory_order({1, 20, 5, 5});
  EXPECT_EQ(order[0], 1);
  EXPECT_EQ(order[1], 2);
  EXPECT_EQ(order[2], 3) << "equal strides keep their order";
  EXPECT_EQ(order[3], 0);
}

TEST(Shape, BroadcastsAsNumPy) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {3}, "op"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({5, 1, 4}, {3, 1}, "op"), (Shape{5, 3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {2, 2}, "op"), (Shape{2, 2}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "op"), (Shape{0}));
  EXPECT_EQ(broadcast_shapes({1, 3}, {0, 1}, "op"), (Shape{0, 3}));
  EXPECT_EQ(error_of([] {
              broadcast_shapes({2, 3}, {2}, "op");
            }),
            "[op] expected shapes that broadcast, got [2, 3] and [2]");
  EXPECT_THROW(broadcast_shapes({0}, {2}, "op"), Error);
}

TEST(Shape, WrapsDims) {
  EXPECT_EQ(wrap_dim(-1, 3, "op"), 2);
  EXPECT_EQ(wrap_dim(2, 3, "op"), 2);
  EXPECT_EQ(wrap_dim(-1, 0, "op"), 0) << "operators take dim 0 and -1 of a scalar";
  EXPECT_THROW(wrap_dim(3, 3, "op"), Error);
  EXPECT_THROW(wrap_dim(-4, 3, "op"), Error);
  EXPECT_THROW(wrap_dim(std::numeric_limits<int64_t>::min(), 3, "op"), Error);
}

}  // namespace
}  // namespace weft
