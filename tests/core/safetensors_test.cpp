#include "core/safetensors.h"

#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

using test::error_of;

std::vector<std::byte> file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  bytes += header + data;
  std::vector<std::byte> out(bytes.size());
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

std::string refusal(const std::string& header, const std::string& data = "") {
  return error_of([&] { parse_safetensors(file_of(header, data), "f"); });
}

TEST(Safetensors, RoundTripsEveryDtypeAndLayout) {
  const std::string path = testing::TempDir() + "/weft_round_trip.safetensors";
  const std::vector<NamedTensor> saved = {
      {"a", test::normal({2, 3}, 1, f32)},
      {"strided", test::strided(test::normal({2, 3}, 2))},
      {"b", from_values(std::vector<BFloat16>{BFloat16(1.5f)})},
      {"h", from_values(std::vector<Float16>{Float16(-2.0f)})},
      {"i", from_values(std::vector<int64_t>{1, -2})},
      {"j", from_values(std::vector<int32_t>{7})},
      {"u", from_values(std::vector<uint8_t>{255})},
      {"none", empty({0, 4})},
      {"scalar", alias(from_values(std::vector<float>{3}), {}, {})},
  };
  const std::vector<std::pair<std::string, std::string>> metadata = {{"made_by", "a test"}};
  save_safetensors(path, saved, metadata);
  const auto loaded = load_safetensors(path);
  ASSERT_EQ(loaded.size(), saved.size());
  for (const NamedTensor& entry : loaded) {
    const auto same = std::find_if(saved.begin(), saved.end(),
                                   [&](const auto& s) { return s.name == entry.name; });
    ASSERT_NE(same, saved.end()) << entry.name;
    EXPECT_EQ(entry.tensor.dtype(), same->tensor.dtype());
    EXPECT_EQ(entry.tensor.shape(), same->tensor.shape());
    EXPECT_EQ(entry.tensor.to_vector<double>(), same->tensor.to_vector<double>()) << entry.name;
  }
}

TEST(Safetensors, RefusesDamageByName) {
  const std::string x = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(parse_safetensors(file_of(x, std::string(8, 'a')), "f").size(), 1u);
  EXPECT_NE(refusal(x, "short").find("expected 8 bytes of tensors, got 5"), std::string::npos);
  EXPECT_NE(refusal(x, "one too many").find("expected 8 bytes"), std::string::npos);
  EXPECT_NE(refusal("{").find("JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("JSON object"), std::string::npos);
  EXPECT_NE(
      refusal(R"({"x":{"dtype":"F8","shape":[],"data_offsets":[0,1]}})", "a").find("tensor 'x'"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "a")
                .find("whole number"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"x":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})")
                .find("fits"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab").find("gap"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "a").find("0 or 1"),
      std::string::npos);
  const std::string twice =
      R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  EXPECT_NE(refusal(twice, "ab").find("each name once"), std::string::npos);
  EXPECT_NE(error_of([] { parse_safetensors({}, "f"); }).find("at least 8 bytes"),
            std::string::npos);
  EXPECT_THROW(load_safetensors("no/such/file"), Error);
}

TEST(Safetensors, AFailedSaveLeavesTheOldFile) {
  const std::string path = testing::TempDir() + "/weft_old.safetensors";
  const std::vector<NamedTensor> old = {{"x", from_values(std::vector<float>{1})}};
  save_safetensors(path, old);
  const std::vector<NamedTensor> twice = {{"x", old[0].tensor}, {"x", old[0].tensor}};
  EXPECT_THROW(save_safetensors(path, twice), Error);
  EXPECT_THROW(save_safetensors("no/such/folder/file", old), Error);
  EXPECT_EQ(load_safetensors(path)[0].tensor.item(), 1);
}

}  // namespace
}  // namespace weft
