// `weft data`: what it writes, what it says, and how it refuses.
#include "data/packed.h"
#include "tests/support/image_files.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

using testing::HasSubstr;

class WeftData : public testing::Test {
 protected:
  WeftData() {
    for (const std::string name : {"b/2.png", "a/1.png", "b/3.png"}) {
      std::filesystem::create_directories(
          std::filesystem::path(folder_ / "in/" + name).parent_path());
      test::write_file(folder_ / "in/" + name, test::make_png(test::smooth_picture(40, 30)));
    }
  }
  test::ProgramResult run(std::vector<std::string> words) const {
    words.insert(words.begin(), {std::string(WEFT_BIN_DIR) + "/weft", "data"});
    return test::run_program(words);
  }
  test::TemporaryDirectory folder_;
};

TEST_F(WeftData, PacksAndChecks) {
  const std::string out = folder_ / "out";
  const auto packed = run({"pack", folder_ / "in", out, "--height", "12", "--width", "16"});
  EXPECT_EQ(packed.code, 0) << packed.output;
  EXPECT_THAT(packed.output, HasSubstr("3 images of 12 × 16 × 3, 2 classes"));
  const data::PackedImages images(out);
  EXPECT_EQ(images.pixels().shape(), Shape({3, 3, 12, 16}));
  EXPECT_EQ(images.labels().to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1}));
  const auto checked = run({"check", out});
  EXPECT_EQ(checked.code, 0) << checked.output;
  EXPECT_THAT(checked.output, HasSubstr("b"));

  std::fstream file(out, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 12 * 16 * 3 + 7);
  file.put('\x7f');
  file.close();
  const auto damaged = run({"check", out});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.output, HasSubstr("damaged: image 1"));
}

TEST_F(WeftData, RefusesInOneLine) {
  test::write_file(folder_ / "in/b/4.jpg", {});
  const std::string out = folder_ / "out";
  const auto failed = run({"pack", folder_ / "in", out});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.output,
              HasSubstr("in/b/4.jpg: expected a JPEG or PNG image, got an empty file"));
  EXPECT_FALSE(std::filesystem::exists(out));
  const auto skipped = run({"pack", folder_ / "in", out, "--bad-files", "skip", "--size", "8"});
  EXPECT_EQ(skipped.code, 0) << skipped.output;
  EXPECT_THAT(skipped.output, HasSubstr("left out"));
  EXPECT_THAT(skipped.output, HasSubstr("3 images"));
  EXPECT_EQ(run({"pack", folder_ / "in", out, "--channels", "2"}).code, 2);
  EXPECT_EQ(run({"pack", folder_ / "in"}).code, 2);
  EXPECT_EQ(run({"check", folder_ / "in/a/1.png"}).code, 1);
  EXPECT_EQ(run({"--help"}).code, 0);
}

}  // namespace
}  // namespace weft
