// The trainer as a library: a program's own worker function, and what fit() returns.
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

namespace weft::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TrainerProgram : public testing::Test {
 protected:
  ProgramResult fit(const std::string& run, const char* workers, const char* max_failures,
                    const std::string& inject = "") const {
    return run_program({WEFT_TRAINER_PROGRAM, folder_ + "/" + run, workers, max_failures, inject});
  }
  // The last line, which main() prints once, after fit().
  static std::string last_line(const std::string& output) {
    const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
    return text.substr(text.rfind('\n') + 1);
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(TrainerProgram, RunsTheSameFunctionOnOneRankAndOnEight) {
  const auto alone = fit("run", "1", "0");
  ASSERT_EQ(alone.code, 0) << alone.output;
  EXPECT_THAT(alone.output, StartsWith("code 0, restarts 0, failures 0, step 40, loss "));
  EXPECT_THAT(alone.output, HasSubstr("/run/checkpoints/step-00000040, best "));
  const auto losses = column(folder_ + "/run/metrics.jsonl", "loss_bits");
  EXPECT_EQ(losses.size(), 40U);
  std::filesystem::remove_all(folder_ + "/run");
  const auto many = fit("run", "8", "0");
  EXPECT_EQ(many.output, alone.output);  // once, whatever the number of ranks
  EXPECT_EQ(column(folder_ + "/run/metrics.jsonl", "loss_bits"), losses);
}

TEST_F(TrainerProgram, TellsOfRestarts) {
  const auto whole = fit("run", "3", "0");
  ASSERT_EQ(whole.code, 0) << whole.output;
  const auto again = fit("run", "3", "0");
  EXPECT_EQ(again.code, 134);  // not caught by main
  EXPECT_THAT(again.output, HasSubstr("RunConfig::overwrite begins it anew"));
  std::filesystem::remove_all(folder_ + "/run");
  const auto killed = fit("run", "3", "2", "kill:phase=optimizer,step=25,rank=2");
  ASSERT_EQ(killed.code, 0) << killed.output;
  std::string expected = last_line(whole.output);
  expected.replace(expected.find("restarts 0, failures 0"), 22, "restarts 1, failures 1");
  EXPECT_EQ(last_line(killed.output), expected);
  EXPECT_THAT(killed.output, HasSubstr("line: rank 2 of 3 was ended by SIGKILL"));
  EXPECT_THAT(killed.output, HasSubstr("line: failure 1 of at most 2: going on from the newest "
                                       "whole checkpoint"));
}

TEST_F(TrainerProgram, ReturnsTheCodeOfARankThatFails) {
  const auto failed = fit("run", "2", "0", "kill:phase=forward,step=25,rank=1");
  EXPECT_EQ(failed.code, 137) << failed.output;
  EXPECT_THAT(last_line(failed.output),
              StartsWith("code 137, restarts 0, failures 1, step 20, loss "));
  const auto rest = fit("run", "2", "0");
  EXPECT_EQ(rest.code, 0);
  EXPECT_THAT(rest.output, StartsWith("code 0, restarts 1, failures 0, step 40"));
}

}  // namespace
}  // namespace weft::test
