// Files exchanged with Python: make_interchange.py builds the same tensors, writes them with the
// safetensors package, and reads ours.
#include "core/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace weft {
namespace {

const std::string kFolder = std::string(WEFT_TESTS_DIR) + "/golden/";

template <class T, class F>
Tensor built(const Shape& shape, F formula) {
  std::vector<T> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<T>(formula(i)));
  return from_values(values, shape);
}

std::vector<NamedTensor> tensors() {
  bool flags[24];
  for (int i = 0; i < 24; ++i)
    flags[i] = i % 3 == 0;
  return {
      {"f64",
       built<double>({2, 3, 4}, [](int64_t i) { return static_cast<double>(i) / 7.0 - 1.5; })},
      {"f32", built<float>({4, 6}, [](int64_t i) { return static_cast<float>(i) * 0.25f - 3; })},
      {"f16", built<Float16>({24}, [](int64_t i) { return Float16(static_cast<float>(i) / 8); })},
      {"i64", built<int64_t>({24}, [](int64_t i) { return i * 1'000'000'007 - 5'000'000'000; })},
      {"i32", built<int32_t>({24, 1}, [](int64_t i) { return i * -3; })},
      {"u8", built<uint8_t>({7}, [](int64_t i) { return i * 10; })},
      {"bool", from_values(std::span<const bool>(flags), {24})},
      {"scalar", from_values(std::vector<float>{2.5f}, {})},
      {"empty", empty({0, 3})},
      {"name \"with\" \\ é", from_values(std::vector<float>{1})}};
}

const std::vector<std::pair<std::string, std::string>> kMetadata = {{"format", "np"},
                                                                    {"note", "quote \" and é"}};

TEST(SafetensorsInterchange, ReadsWhatPythonWrote) {
  std::map<std::string, Tensor> found;
  for (const NamedTensor& entry : load_safetensors(kFolder + "interchange.safetensors"))
    found[entry.name] = entry.tensor;
  const auto expected = tensors();
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found[name].dtype(), tensor.dtype()) << name;
    EXPECT_EQ(found[name].shape(), tensor.shape()) << name;
    EXPECT_EQ(found[name].to_vector<double>(), tensor.to_vector<double>()) << name;
    EXPECT_EQ(found[name].to_vector<int64_t>(), tensor.to_vector<int64_t>()) << name;
  }
  EXPECT_EQ(load_safetensors_metadata(kFolder + "interchange.safetensors"), kMetadata);
}

TEST(SafetensorsInterchange, PythonReadsWhatWeftWrote) {
  const std::string file =
      testing::TempDir() + "weft_interchange_" + std::to_string(getpid()) + ".safetensors";
  save_safetensors(file, tensors(), kMetadata);
  const std::string command =
      "'" WEFT_PYTHON "' '" + kFolder + "make_interchange.py' check '" + file + "'";
  const int status = std::system(command.c_str());
  std::remove(file.c_str());
  EXPECT_EQ(status, 0) << command;
}

}  // namespace
}  // namespace weft
