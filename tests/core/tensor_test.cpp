#include "core/tensor.h"

#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weft {
namespace {

using test::error_of;

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  return from_values(values, shape);
}

TEST(Tensor, EmptyIsRowMajor) {
  const Tensor tensor = empty({2, 3, 4}, {.dtype = f64});
  EXPECT_EQ(tensor.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(tensor.strides(), (Strides{12, 4, 1}));
  EXPECT_EQ(tensor.numel(), 24);
  EXPECT_EQ(tensor.bytes(), 192);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_TRUE(tensor.is_dense());
  EXPECT_EQ(tensor.byte_offset(), 0);
  EXPECT_TRUE(tensor.is_leaf());
  EXPECT_FALSE(tensor.requires_grad());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, SizesOfDims) {
  const Tensor tensor = empty({2, 5});
  EXPECT_EQ(tensor.size(-1), 5);
  EXPECT_EQ(tensor.stride(0), 5);
  EXPECT_THROW(tensor.size(2), Error);
  const Tensor scalar = empty({});
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_THROW(scalar.size(0), Error) << "a 0-dim tensor has no dim 0";
  EXPECT_THROW(scalar.stride(-1), Error);
}

TEST(Tensor, AbsurdShapesThrow) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(empty({huge, huge}), Error);
  EXPECT_THROW(empty({huge}), Error);
  EXPECT_THROW(empty({3, -1}), Error);
  EXPECT_THROW(empty({0, huge, 8}), Error);
  EXPECT_THROW(empty_strided({huge, 2}, {1, 1}), Error);
}

TEST(Tensor, TypedAccessIsChecked) {
  const Tensor tensor = empty({2});
  EXPECT_NE(tensor.data<float>(), nullptr);
  EXPECT_EQ(error_of([&] { (void)tensor.data<double>(); }),
            "[data] expected a tensor of f64, got f32");
}

TEST(Tensor, ReadsInLogicalOrderWhateverTheStrides) {
  const Tensor tensor = counting({2, 3});
  const Tensor transposed = alias(tensor, {3, 2}, {1, 3});
  EXPECT_EQ(transposed.to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_TRUE(transposed.is_dense());
  const Tensor column = alias(tensor, {2}, {3}, 1);
  EXPECT_EQ(column.to_vector<int64_t>(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(column.byte_offset(), 4);
  EXPECT_FALSE(column.is_dense());
  const Tensor repeated = alias(tensor, {2, 2}, {0, 0}, 5);
  EXPECT_EQ(repeated.to_vector<double>(), (std::vector<double>{5, 5, 5, 5}));
  EXPECT_FALSE(repeated.is_dense());
  EXPECT_TRUE(alias(tensor, {1, 6, 1}, {77, 1, 99}).is_contiguous())
      << "strides of size-1 dims do not count";
  EXPECT_TRUE(alias(tensor, {0, 3}, {7, 5}).is_contiguous()) << "nothing is contiguous";
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(counting({1, 1}).item(), 0);
  EXPECT_EQ(from_values(std::vector<int64_t>{(int64_t{1} << 62) + 1}).item_int(),
            (int64_t{1} << 62) + 1);
  EXPECT_EQ(from_values(std::vector<BFloat16>{BFloat16(1.5f)}).item(), 1.5);
  EXPECT_EQ(error_of([] { (void)counting({2}).item(); }),
            "[item] expected one element, got shape [2]");
  EXPECT_THROW((void)empty({0}).item_int(), Error);
}

TEST(Tensor, RealNumbersAsIntegersSaturate) {
  const Tensor tensor =
      from_values(std::vector<double>{std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, -3.7, 300});
  EXPECT_EQ(tensor.to_vector<int64_t>(),
            (std::vector<int64_t>{0, INT64_MAX, INT64_MIN, INT64_MAX, -3, 300}));
  EXPECT_EQ(tensor.to_vector<uint8_t>(), (std::vector<uint8_t>{0, 255, 0, 255, 0, 255}));
}

TEST(Tensor, ChannelsLast) {
  const Tensor image = empty_strided({2, 3, 4, 5}, channels_last_strides({2, 3, 4, 5}));
  EXPECT_TRUE(image.is_channels_last());
  EXPECT_TRUE(image.is_dense());
  EXPECT_FALSE(image.is_contiguous());
  EXPECT_FALSE(empty({2, 3, 4, 5}).is_channels_last());
  EXPECT_TRUE(empty({2, 1, 4, 5}).is_channels_last()) << "one channel is both";
  EXPECT_FALSE(empty({2, 3}).is_channels_last());
}

TEST(Tensor, EmptyStridedWantsADenseLayout) {
  EXPECT_EQ(empty_strided({2, 3}, {1, 2}).strides(), (Strides{1, 2}));
  for (const Strides& bad :
       {Strides{4, 1}, Strides{1, 1}, Strides{0, 1}, Strides{-3, 1}, Strides{INT64_MAX, 1}}) {
    EXPECT_THROW(empty_strided({2, 3}, bad), Error) << to_string(bad);
  }
  EXPECT_THROW(empty_strided({2, 3}, {1}), Error);
}

TEST(Tensor, EmptyLikeKeepsDenseLayouts) {
  const Tensor image =
      empty_strided({2, 3, 4, 5}, channels_last_strides({2, 3, 4, 5}), {.dtype = bf16});
  EXPECT_EQ(empty_like(image).strides(), image.strides());
  EXPECT_EQ(empty_like(image).dtype(), bf16);
  EXPECT_EQ(empty_like(image, f64).dtype(), f64);
  const Tensor column = alias(counting({4, 4}), {4}, {4});
  EXPECT_EQ(empty_like(column).strides(), (Strides{1}));
}

TEST(Tensor, ViewsAreBoundsChecked) {
  const Ref<Storage> storage = Storage::allocate(64);
  EXPECT_NO_THROW(view_of(storage, 0, {4, 4}, {4, 1}, f32));
  EXPECT_NO_THROW(view_of(storage, 60, {1}, {1}, f32));
  EXPECT_NO_THROW(view_of(storage, 64, {0}, {1}, f32));
  EXPECT_NO_THROW(view_of(storage, 0, {1000}, {0}, f32)) << "one element, many times";
  EXPECT_THROW(view_of(storage, 4, {4, 4}, {4, 1}, f32), Error);
  EXPECT_THROW(view_of(storage, 64, {1}, {1}, f32), Error);
  EXPECT_THROW(view_of(storage, -4, {1}, {1}, f32), Error);
  EXPECT_THROW(view_of(storage, 2, {1}, {1}, f32), Error) << "an address that f32 cannot have";
  EXPECT_THROW(view_of(storage, 8, {2}, {-1}, f32), Error);
  EXPECT_THROW(view_of(storage, 0, {2}, {1, 1}, f32), Error);
  // Products and sums past 63 bits must not come round into bounds.
  EXPECT_THROW(view_of(storage, 0, {5}, {int64_t{1} << 62}, u8), Error);
  EXPECT_THROW(view_of(storage, 0, {3, 3}, {int64_t{1} << 61, int64_t{1} << 61}, u8), Error);
  EXPECT_THROW(view_of(storage, 0, {2}, {int64_t{1} << 62}, f32), Error);
  EXPECT_THROW(view_of(storage, INT64_MAX - 7, {64}, {1}, u8), Error);
}

TEST(Tensor, ViewsShareValuesAndVersion) {
  const Tensor tensor = counting({4});
  const Tensor view = alias(tensor, {2}, {1}, 2);
  const Tensor detached = tensor.detach();
  const uint32_t before = tensor.version();
  view.data<float>()[0] = 9;
  view.bump_version();
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{0, 1, 9, 3}));
  EXPECT_EQ(tensor.version(), before + 1);
  EXPECT_EQ(detached.version(), before + 1);
  EXPECT_FALSE(tensor.is_same(detached));
  EXPECT_TRUE(tensor.is_same(Tensor(tensor)));
}

TEST(Tensor, StorageLivesAsLongAsAView) {
  Tensor view;
  {
    const Tensor tensor = counting({1000});
    view = alias(tensor, {1}, {1}, 999);
  }
  EXPECT_EQ(view.item(), 999);
}

TEST(Tensor, ViewsOfAbsurdSizeAreRefused) {
  const Tensor one = counting({1});
  const int64_t vast = int64_t{1} << 40;
  EXPECT_EQ(error_of([&] {
              alias(one, {vast, vast}, {0, 0});
            }),
            "[alias] expected a size that fits in 63 bits of bytes, got shape [1099511627776, "
            "1099511627776]");
  EXPECT_THROW(alias(one, {vast, vast, 0}, {0, 0, 0}), Error);
  EXPECT_EQ(alias(one, {vast}, {0}).numel(), vast);
}

TEST(Tensor, FromValuesCounts) {
  EXPECT_EQ(from_values(std::vector<float>{1, 2, 3, 4}, {2, 2}).shape(), (Shape{2, 2}));
  EXPECT_EQ(from_values(std::vector<float>{}, {0, 3}).numel(), 0);
  EXPECT_EQ(from_values(std::vector<float>{5}, {}).dims(), 0);
  EXPECT_EQ(error_of([] {
              from_values(std::vector<float>{1, 2, 3}, {2, 2});
            }),
            "[from_values] expected 4 values for shape [2, 2], got 3");
  const bool flags[] = {true, false, true};
  EXPECT_EQ(from_values(std::span<const bool>(flags), {3}).to_vector<uint8_t>(),
            (std::vector<uint8_t>{1, 0, 1}));
}

}  // namespace
}  // namespace weft
