#include "core/dtype.h"

#include "core/device.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

constexpr std::array<DType, 8> kAll = {boolean, u8, i32, i64, f16, bf16, f32, f64};

TEST(DType, PromotesAsTorchResultType) {
  // torch.result_type of two tensors with dims, PyTorch 2: row and column in the order of kAll.
  const DType table[8][8] = {
      {boolean, u8, i32, i64, f16, bf16, f32, f64}, {u8, u8, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i64, f16, bf16, f32, f64},    {i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f32, f32, f64},     {bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f64},     {f64, f64, f64, f64, f64, f64, f64, f64}};
  for (size_t a = 0; a < 8; ++a) {
    for (size_t b = 0; b < 8; ++b) {
      EXPECT_EQ(promote(kAll[a], kAll[b]), table[a][b])
          << to_string(kAll[a]) << " with " << to_string(kAll[b]);
    }
  }
}

TEST(DType, ScalarsChangeTheKindOnly) {
  // torch.result_type(tensor, True), (tensor, 1) and (tensor, 1.5).
  const DType with_bool[8] = {boolean, u8, i32, i64, f16, bf16, f32, f64};
  const DType with_int[8] = {i64, u8, i32, i64, f16, bf16, f32, f64};
  const DType with_real[8] = {f32, f32, f32, f32, f16, bf16, f32, f64};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(promote(kAll[i], Scalar(true)), with_bool[i]) << to_string(kAll[i]);
    EXPECT_EQ(promote(kAll[i], Scalar(1)), with_int[i]) << to_string(kAll[i]);
    EXPECT_EQ(promote(kAll[i], Scalar(1.5)), with_real[i]) << to_string(kAll[i]);
  }
}

TEST(DType, NamesGoBothWays) {
  for (const DType dtype : kAll)
    EXPECT_EQ(dtype_from_name(to_string(dtype)), dtype);
  EXPECT_EQ(to_string(bf16), "bf16");
  EXPECT_EQ(to_string(boolean), "bool");
  EXPECT_EQ(test::error_of([] { dtype_from_name("float"); }),
            "[dtype] expected one of bool u8 i32 i64 f16 bf16 f32 f64, got 'float'");
}

TEST(DType, SizesMatchTheirCppTypes) {
  for (const DType dtype : kAll) {
    dispatch_all(dtype, [&]<class T>() {
      EXPECT_EQ(static_cast<int64_t>(sizeof(T)), size_of(dtype)) << to_string(dtype);
      EXPECT_EQ(dtype_of<T>, dtype);
    });
  }
}

TEST(DType, ComputesSixteenBitFloatsInF32AndIntegersInI64) {
  const DType expected[8] = {i64, i64, i64, i64, f32, f32, f32, f64};
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(compute_dtype(kAll[i]), expected[i]);
}

TEST(Scalar, KeepsWideIntegersExact) {
  EXPECT_EQ(Scalar((int64_t{1} << 62) + 1).to_int(), (int64_t{1} << 62) + 1);
  EXPECT_EQ(Scalar(2.75).to_int(), 2);
  EXPECT_EQ(Scalar(true).to_double(), 1.0);
  EXPECT_TRUE(Scalar(1.0f).is_floating());
  EXPECT_FALSE(Scalar(1).is_floating());
}

TEST(Device, ParsesNames) {
  EXPECT_EQ(device_from_name("cpu"), cpu);
  EXPECT_EQ(device_from_name("cuda"), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(device_from_name("cuda:3"), (Device{DeviceKind::cuda, 3}));
  EXPECT_EQ(to_string(Device{DeviceKind::cuda, 3}), "cuda:3");
  EXPECT_EQ(to_string(cpu), "cpu");
  for (const char* bad :
       {"", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda:128", "cuda: 1", "gpu"}) {
    EXPECT_THROW(device_from_name(bad), Error) << bad;
  }
  EXPECT_EQ(test::error_of([] { device_from_name("tpu"); }),
            "[device] expected cpu, cuda or cuda:N, got 'tpu'");
}

TEST(Device, TensorsOnADeviceThatIsNotBuiltAreRefused) {
  EXPECT_THROW(empty({2}, {.dtype = f32, .device = {DeviceKind::cuda, 0}}), Error);
}

}  // namespace
}  // namespace weft
