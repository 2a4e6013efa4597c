#include "core/safetensors.h"

#include "core/ledger.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace weft {
namespace {

using test::error_of;
namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("weft_safetensors_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "file.safetensors") const {
    return (folder_ / name).string();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }
  static std::string contents(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

 private:
  fs::path folder_;
};

std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i)
    bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::vector<NamedTensor> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "f");
}

std::string error_for(const std::string& header, const std::string& data = "") {
  return error_of([&] { parse(file_of(header, data)); });
}

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.is_contiguous() &&
         b.is_contiguous() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

TEST_F(Safetensors, EveryDtypeAndShapeSurvives) {
  const bool flags[] = {true, false, true};
  const std::vector<NamedTensor> saved = {
      {"bool", from_values(std::span<const bool>(flags), {3})},
      {"u8", from_values(std::vector<uint8_t>{0, 127, 255})},
      {"i32", from_values(std::vector<int32_t>{INT32_MIN, 0, INT32_MAX, 7}, {2, 2})},
      {"i64", from_values(std::vector<int64_t>{INT64_MIN, INT64_MAX})},
      {"f16", from_values(std::vector<Float16>{Float16(1.5f), Float16(-0.0f)})},
      {"bf16", from_values(std::vector<BFloat16>{BFloat16(3e38f)}, {1, 1, 1})},
      {"f32", from_values(std::vector<float>{1, NAN, -INFINITY, 1e-45f})},
      {"f64", from_values(std::vector<double>{1.0 / 3})},
      {"scalar", from_values(std::vector<float>{4}, {})},
      {"empty", empty({0, 3})},
      {"quote \" backslash \\ newline \n é 漢", from_values(std::vector<float>{1})},
      {"", from_values(std::vector<float>{2})},
  };
  save_safetensors(path(), saved);
  const std::vector<NamedTensor> loaded = load_safetensors(path());
  ASSERT_EQ(loaded.size(), saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(loaded[i].name, saved[i].name) << "the order of saving";
    EXPECT_TRUE(same(loaded[i].tensor, saved[i].tensor)) << saved[i].name;
  }
  EXPECT_EQ(files().size(), 1u) << "no temporary file is left";
}

TEST_F(Safetensors, StridedTensorsAreStoredRowMajor) {
  std::vector<float> values(600'000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  const Tensor base = from_values(values, {600, 1000});
  const Tensor transposed = alias(base, {1000, 600}, {1, 1000});  // larger than the writer's buffer
  const Tensor repeated = alias(base, {2, 3}, {0, 1}, 5);
  save_safetensors(path(),
                   std::vector<NamedTensor>{{"transposed", transposed}, {"repeated", repeated}});
  const auto loaded = load_safetensors(path());
  EXPECT_EQ(loaded[0].tensor.to_vector<float>(), transposed.to_vector<float>());
  EXPECT_EQ(loaded[1].tensor.to_vector<float>(), (std::vector<float>{5, 6, 7, 5, 6, 7}));
}

TEST_F(Safetensors, MetadataSurvives) {
  const std::vector<std::pair<std::string, std::string>> metadata = {
      {"z", "first"}, {"format", "pt \" é"}, {"e", ""}};
  save_safetensors(path(), {}, metadata);
  EXPECT_EQ(load_safetensors_metadata(path()), metadata);
  EXPECT_TRUE(load_safetensors(path()).empty());
  save_safetensors(path(), {});
  EXPECT_TRUE(load_safetensors_metadata(path()).empty());
}

TEST_F(Safetensors, DataAndEveryTensorAreAligned) {
  for (size_t length = 1; length < 70; ++length) {
    save_safetensors(path(),
                     std::vector<NamedTensor>{
                         {std::string(length, 'n'), from_values(std::vector<uint8_t>{1, 2, 3})},
                         {"wide", from_values(std::vector<double>{7})}});
    const std::string bytes = contents(path());
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    ASSERT_EQ((8 + header) % 64, 0u) << length;
    double first = 0;
    std::memcpy(&first, bytes.data() + 8 + header, 8);
    ASSERT_EQ(first, 7) << "wider dtypes come first, so that none lies across its alignment";
    ASSERT_EQ(load_safetensors(path())[1].tensor.item(), 7);
  }
}

TEST_F(Safetensors, BadNamesAreRefusedBeforeAnythingIsWritten) {
  const Tensor one = from_values(std::vector<float>{1});
  EXPECT_THROW(save_safetensors(path(), std::vector<NamedTensor>{{"a", one}, {"a", one}}), Error);
  EXPECT_THROW(save_safetensors(path(), std::vector<NamedTensor>{{"__metadata__", one}}), Error);
  EXPECT_THROW(save_safetensors(path(), std::vector<NamedTensor>{{"\xff", one}}), Error);
  EXPECT_THROW(save_safetensors(path(), std::vector<NamedTensor>{{"a", Tensor()}}), Error);
  const std::vector<std::pair<std::string, std::string>> twice = {{"k", "1"}, {"k", "2"}};
  EXPECT_THROW(save_safetensors(path(), {}, twice), Error);
  const Tensor claims_much = alias(one, {int64_t{1} << 60}, {0});
  EXPECT_THROW(save_safetensors(path(),
                                std::vector<NamedTensor>{
                                    {"a", claims_much}, {"b", claims_much}, {"c", claims_much}}),
               Error);
  EXPECT_TRUE(files().empty());
}

TEST_F(Safetensors, AFailedSaveLeavesTheOldFile) {
  save_safetensors(path(), std::vector<NamedTensor>{{"old", from_values(std::vector<float>{1})}});
  const std::string before = contents(path());
  // A file size limit stops the write half way, as a full disk would.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{100'000, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] {
    save_safetensors(path(), std::vector<NamedTensor>{{"new", empty({100'000})}});
  });
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_NE(error.find("[save_safetensors] " + path()), std::string::npos) << error;
  EXPECT_EQ(contents(path()), before);
  EXPECT_EQ(files().size(), 1u) << "no temporary file is left";
}

TEST_F(Safetensors, AFolderInTheWayOrMissingIsNamed) {
  fs::create_directory(path());
  EXPECT_THROW(save_safetensors(path(), {}), Error);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_THROW(load_safetensors(path()), Error);
  const std::string missing = path("none/file");
  EXPECT_NE(error_of([&] { save_safetensors(missing, {}); }).find(missing), std::string::npos);
  EXPECT_NE(error_of([&] { load_safetensors(missing); }).find(missing), std::string::npos);
  EXPECT_THROW(load_safetensors("/dev/zero"), Error);
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  save_safetensors(path(), std::vector<NamedTensor>{{"a", from_values(std::vector<float>{1, 2})},
                                                    {"b", from_values(std::vector<uint8_t>{3})}});
  const std::string whole = contents(path());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parse(whole.substr(0, length)), Error) << length;
  }
  EXPECT_THROW(parse(whole + "x"), Error) << "bytes after the last tensor";
  std::ofstream(path(), std::ios::binary) << whole.substr(0, whole.size() - 1);
  EXPECT_NE(error_of([&] { load_safetensors(path()); }).find(path()), std::string::npos);
}

TEST_F(Safetensors, LoadsIntoTheCallersCategory) {
  save_safetensors(path(), std::vector<NamedTensor>{{"a", from_values(std::vector<float>{1, 2})}});
  Ledger ledger;
  const LedgerScope scope(ledger);
  const CategoryScope category(Category::parameters);
  const auto loaded = load_safetensors(path());
  EXPECT_EQ(ledger.current(Category::parameters), 8);
  EXPECT_EQ(ledger.peak_total(), 8);
}

TEST(SafetensorsHeader, AcceptsWhatTheFormatAllows) {
  EXPECT_TRUE(parse(file_of("{}")).empty());
  EXPECT_EQ(parse(file_of(R"({ "a" : {"shape":[], "data_offsets":[0,4], "dtype":"F32"} }   )",
                          std::string("\0\0\x80?", 4)))[0]
                .tensor.item(),
            1);
}

TEST(SafetensorsHeader, RefusesEachKindOfDamageByName) {
  const auto tensor = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  const std::string f32_2 = R"("dtype":"F32","shape":[2],)";
  const std::string eight(8, '\0');
  const struct {
    std::string header, data, message;
  } cases[] = {
      {"", "", "begins with {"},
      {"[]", "", "begins with {"},
      {"{", "", "damage"},
      {"{} {}", "", "damage"},
      {"{\"\xff\":1}", "", "damage"},
      {R"({"w":1})", "", "expected an object for 'w'"},
      {R"({"w":[]})", "", "expected an object for 'w'"},
      {tensor(R"("dtype":"F32","shape":[2])"), eight,
       "tensor 'w': expected dtype, shape and data_offsets"},
      {tensor(f32_2 + R"("data_offsets":[0,8],"x":1)"), eight,
       "tensor 'w': expected dtype, shape and data_offsets once"},
      {tensor(f32_2 + R"("dtype":"F32","data_offsets":[0,8])"), eight, "'dtype' again"},
      {tensor(R"("dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2])"), "ab",
       "tensor 'w': expected a dtype of BOOL"},
      {tensor(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), eight, "tensor 'w'"},
      {tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), eight, "tensor 'w'"},
      {tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), eight, "tensor 'w'"},
      {tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), eight,
       "tensor 'w': expected a shape of sizes"},
      {tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), eight,
       "tensor 'w': expected a shape of sizes"},
      {tensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), eight,
       "tensor 'w': expected a shape of sizes"},
      {tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), eight,
       "expected a shape of sizes"},
      {tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), eight,
       "at most 8 dims"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "",
       "fit in 63 bits"},
      {tensor(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), "",
       "fit in 63 bits"},
      {tensor(f32_2 + R"("data_offsets":[0])"), eight, "two data_offsets"},
      {tensor(f32_2 + R"("data_offsets":[0,8,8])"), eight, "two data_offsets"},
      {tensor(f32_2 + R"("data_offsets":[8,0])"), eight, "tensor 'w': expected 8 bytes for f32[2]"},
      {tensor(f32_2 + R"("data_offsets":[0,4])"), eight, "tensor 'w': expected 8 bytes for f32[2]"},
      {tensor(f32_2 + R"("data_offsets":[1,9])"), eight + "x", "there is a gap"},
      {tensor(f32_2 + R"("data_offsets":[0,8])"), eight + "x",
       "expected 8 bytes of tensors after the header, got 9"},
      {tensor(f32_2 + R"("data_offsets":[0,8])"), "x",
       "expected 8 bytes of tensors after the header, got 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       "abc", "tensor 'b': expected its bytes to begin at 2, got 1: it overlaps another"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "ab", "expected each tensor once, got 'a' again"},
      {R"({"__metadata__":{"k":1}})", "", "expected a string for metadata 'k'"},
      {R"({"__metadata__":{"k":{"l":"m"}}})", "", "expected a string for metadata 'k'"},
      {R"({"__metadata__":"x"})", "", "expected an object for '__metadata__'"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "", "expected each metadata key once"},
      {R"({"__metadata__":{},"__metadata__":{}})", "", "'__metadata__' again"},
      {tensor(R"("dtype":"BOOL","shape":[2],"data_offsets":[0,2])"), std::string("\1\2"),
       "bools of 0 or 1"},
  };
  for (const auto& c : cases) {
    const std::string error = error_for(c.header, c.data);
    EXPECT_EQ(error.find("[load_safetensors] f: "), 0u) << c.header << "\n" << error;
    EXPECT_NE(error.find(c.message), std::string::npos) << c.header << "\n" << error;
  }
}

TEST(SafetensorsHeader, NamesTheMissingField) {
  EXPECT_NE(error_for(R"({"w":{}})").find("tensor 'w'"), std::string::npos);
}

TEST(SafetensorsHeader, LengthsAreCheckedBeforeUse) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_THROW(parse(bytes + "{}"), Error) << length;
  }
}

TEST(SafetensorsHeader, DeepNestingIsRefusedNotFollowed) {
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i)
    deep += "{\"a\":";
  EXPECT_THROW(parse(file_of(deep)), Error);
}

TEST(SafetensorsHeader, LongTextIsCutInErrors) {
  EXPECT_LT(error_for("{\"" + std::string(1'000'000, 'n') + "\":1}").size(), 500u);
}

TEST(SafetensorsHeader, NothingIsAllocatedForWhatTheFileDoesNotHold) {
  Ledger ledger(1 << 20);
  const LedgerScope scope(ledger);
  const std::string error = error_for(
      R"({"w":{"dtype":"F64","shape":[1000000000],"data_offsets":[0,8000000000]}})", "abc");
  EXPECT_NE(error.find("expected 8000000000 bytes of tensors after the header, got 3"),
            std::string::npos)
      << error;
  EXPECT_EQ(ledger.peak_total(), 0);
}

}  // namespace
}  // namespace weft
