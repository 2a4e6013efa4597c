#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <sstream>

namespace weft {
namespace {

TEST(Print, WholeNumbersAreShort) {
  EXPECT_EQ(to_string(from_values(std::vector<float>{1, 2, 3, -40}, {2, 2})),
            "tensor f32[2, 2]\n[[  1,   2],\n [  3, -40]]");
}

TEST(Print, RealNumbersLineUp) {
  EXPECT_EQ(to_string(from_values(std::vector<double>{0.5, -1.25, 10, 3}, {2, 2})),
            "tensor f64[2, 2]\n[[ 0.5000, -1.2500],\n [10.0000,  3.0000]]");
  EXPECT_EQ(to_string(from_values(std::vector<double>{1e-9, 2.5e30})),
            "tensor f64[2]\n[1.0000e-09, 2.5000e+30]");
}

TEST(Print, EveryDtype) {
  EXPECT_EQ(to_string(from_values(std::vector<int64_t>{INT64_MIN, INT64_MAX})),
            "tensor i64[2]\n[-9223372036854775808,  9223372036854775807]");
  EXPECT_EQ(to_string(from_values(std::vector<int32_t>{-7})), "tensor i32[1]\n[-7]");
  EXPECT_EQ(to_string(from_values(std::vector<uint8_t>{200})), "tensor u8[1]\n[200]");
  EXPECT_EQ(to_string(from_values(std::vector<BFloat16>{BFloat16(1.5f)})),
            "tensor bf16[1]\n[1.5000]");
  EXPECT_EQ(to_string(from_values(std::vector<Float16>{Float16(0.25f)})),
            "tensor f16[1]\n[0.2500]");
  const bool flags[] = {true, false};
  EXPECT_EQ(to_string(from_values(std::span<const bool>(flags), {2})),
            "tensor bool[2]\n[ true, false]");
}

TEST(Print, NotNumbers) {
  EXPECT_EQ(to_string(from_values(std::vector<float>{NAN, INFINITY, -INFINITY, 1})),
            "tensor f32[4]\n[ nan,  inf, -inf,    1]");
  EXPECT_EQ(to_string(from_values(std::vector<float>{NAN})), "tensor f32[1]\n[nan]");
}

TEST(Print, OddShapes) {
  EXPECT_EQ(to_string(Tensor()), "tensor undefined");
  EXPECT_EQ(to_string(from_values(std::vector<float>{2.5f}, {})), "tensor f32[]\n2.5000");
  EXPECT_EQ(to_string(empty({0})), "tensor f32[0]\n[]");
  EXPECT_EQ(to_string(empty({3, 0, 2})), "tensor f32[3, 0, 2]\n[]");
  EXPECT_EQ(to_string(from_values(std::vector<float>{1, 2, 3, 4}, {2, 1, 2})),
            "tensor f32[2, 1, 2]\n[[[1, 2]],\n\n [[3, 4]]]");
}

TEST(Print, FollowsStrides) {
  const Tensor tensor = from_values(std::vector<float>{1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(to_string(alias(tensor, {2, 2}, {1, 2})), "tensor f32[2, 2]\n[[1, 3],\n [2, 4]]");
}

TEST(Print, LongRowsWrap) {
  const std::string text = to_string(from_values(std::vector<float>(200, 0.5f)));
  std::istringstream lines(text);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 102u);
    ++count;
  }
  EXPECT_GT(count, 10);
}

TEST(Print, LargeTensorsShowTheirEdges) {
  std::vector<int32_t> values(1001);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(to_string(from_values(values)),
            "tensor i32[1001]\n[   0,    1,    2, …,  998,  999, 1000]");
  values.resize(1000);
  EXPECT_EQ(to_string(from_values(values)).find("…"), std::string::npos)
      << "1000 elements are shown whole";
  values.resize(1200);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(to_string(from_values(values, {4, 300})),
            "tensor i32[4, 300]\n"
            "[[   0,    1,    2, …,  297,  298,  299],\n"
            " [ 300,  301,  302, …,  597,  598,  599],\n"
            " [ 600,  601,  602, …,  897,  898,  899],\n"
            " [ 900,  901,  902, …, 1197, 1198, 1199]]")
      << "short dims are shown whole";
  EXPECT_EQ(
      to_string(from_values(values, {400, 3})),
      "tensor i32[400, 3]\n[[   0,    1,    2],\n [   3,    4,    5],\n [   6,    7,    8],\n …,\n"
      " [1191, 1192, 1193],\n [1194, 1195, 1196],\n [1197, 1198, 1199]]");
}

TEST(Print, GoesToStreams) {
  std::ostringstream stream;
  stream << from_values(std::vector<float>{1});
  EXPECT_EQ(stream.str(), "tensor f32[1]\n[1]");
}

}  // namespace
}  // namespace weft
