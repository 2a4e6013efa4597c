// A run whose newest checkpoint is damaged, gone on with by the command line. Every byte and every
// length is tried in tests/dist/checkpoint_resume_test.cpp; here some of each file.
#include "tests/apps/app_runs.h"

namespace weft::test {
namespace {

using testing::HasSubstr;

class Damage : public AppRuns {};

TEST_F(Damage, ResumeAutoNamesTheFileAndTakesTheOlderCheckpoint) {
  const std::string ranks = "--workers 2 --strategy zero3";
  ASSERT_EQ(start("whole", ranks).code, 0);
  const auto expected = outcome("whole");
  // The delay gives the save of step 6 the time to be whole.
  const auto killed =
      start("run", ranks, "delay:phase=data,step=7,seconds=1.5;kill:phase=forward,step=8,rank=1");
  ASSERT_NE(killed.code, 0);
  ASSERT_EQ(checkpoints("run"), (std::vector<std::string>{"step-00000004", "step-00000006"}));
  const std::string newest = "/checkpoints/step-00000006/";
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path("run" + newest)))
    files.push_back(entry.path().filename().string());
  ASSERT_EQ(files.size(), 3U);

  // `bytes`: what stands in the file instead; nothing removes it.
  const auto expect_passed_over = [&](const std::string& file, const std::string& what,
                                      const std::string& bytes) {
    SCOPED_TRACE(file + ": " + what);
    std::filesystem::remove_all(path("copy"));
    std::filesystem::copy(
        path("run"), path("copy"),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    const std::string damaged = path("copy" + newest + file);
    std::filesystem::remove(damaged);
    if (what != "removed") std::ofstream(damaged, std::ios::binary) << bytes;
    const auto result = start("copy", ranks + " --resume auto");
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("passed over a damaged checkpoint: "));
    EXPECT_THAT(result.output, HasSubstr("step-00000006/" + file));
    EXPECT_THAT(result.output, HasSubstr("resumed after step 4 "));
    EXPECT_EQ(outcome("copy"), expected);
  };
  for (const std::string& file : files) {
    const std::string whole = read_file(path("run" + newest + file));
    // The header's length, the header, the values, the last byte.
    for (const size_t at : {size_t{0}, size_t{70}, whole.size() / 2, whole.size() - 1}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 4);
      expect_passed_over(file, "a flip in byte " + std::to_string(at), bytes);
    }
    for (const size_t length : {size_t{0}, whole.size() / 2, whole.size() - 1})
      expect_passed_over(file, "cut to " + std::to_string(length), whole.substr(0, length));
    expect_passed_over(file, "removed", "");
  }
}

}  // namespace
}  // namespace weft::test
