// Where a run goes on: from the checkpoint that is named, with the loss that it had, or not at all.
#include "tests/apps/app_runs.h"

namespace weft::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class RunResume : public AppRuns {};

TEST_F(RunResume, GoesBackToTheCheckpointThatIsNamed) {
  ASSERT_EQ(start("whole", "--keep 0").code, 0);
  const auto expected = outcome("whole");
  // Back in the same run: later checkpoints go.
  const auto back = start("whole", "--keep 0 --resume " + path("whole/checkpoints/step-00000004"));
  ASSERT_EQ(back.code, 0) << back.output;
  EXPECT_EQ(outcome("whole"), expected);
  EXPECT_EQ(checkpoints("whole").size(), 5U);
  // From another run: the curve begins behind it.
  const auto from = start("run", "--workers 2 --resume " + path("whole/checkpoints/step-00000004"));
  ASSERT_EQ(from.code, 0) << from.output;
  EXPECT_THAT(column(path("run/metrics.jsonl"), "step"), ElementsAre("5", "6", "7", "8", "9"));
  EXPECT_EQ(read_file(path("run.export")), read_file(path("whole.export")));
}

// Until an attempt has gone back, later ones are told to, however the first one ended; then they go
// on with what the run has.
TEST_F(RunResume, GoesBackInALaterAttemptIfTheFirstDiesBefore) {
  ASSERT_EQ(start("whole", "--keep 0").code, 0);
  const auto expected = outcome("whole");
  const auto back = start(
      "whole",
      "--keep 0 --workers 2 --max-failures 2 --resume " + path("whole/checkpoints/step-00000004"),
      "throw:phase=load,rank=0,attempt=2;kill:phase=snapshot,step=8,rank=1,attempt=3");
  ASSERT_EQ(back.code, 0) << back.output;
  EXPECT_THAT(back.output, HasSubstr("failure 1 of at most 2: going on from " +
                                     path("whole/checkpoints/step-00000004")));
  EXPECT_THAT(back.output, HasSubstr("resumed after step 4 "));
  EXPECT_THAT(back.output, HasSubstr("failure 2 of at most 2: going on from the newest whole"));
  EXPECT_THAT(back.output, HasSubstr("resumed after step 6 "));
  EXPECT_THAT(back.output, Not(HasSubstr("resumed after step 9 ")));
  EXPECT_EQ(outcome("whole"), expected);
}

// The first loss after a resume is held against what it was.
TEST_F(RunResume, AnotherLossThanBeforeIsAnError) {
  const auto killed = start("run", "--workers 2", "kill:phase=forward,step=8,rank=0");
  ASSERT_NE(killed.code, 0);
  std::string metrics = read_file(path("run/metrics.jsonl"));
  const std::string before = column(path("run/metrics.jsonl"), "loss_bits").at(4);
  ASSERT_EQ(checkpoints("run").back().substr(0, 5), "step-");
  // The line of the step after the newest checkpoint tells of another loss.
  const int last = std::atoi(checkpoints("run").back().c_str() + 5);
  const std::string bits =
      column(path("run/metrics.jsonl"), "loss_bits").at(static_cast<size_t>(last));
  metrics.replace(metrics.find(bits), 8, "deadbeef");
  std::ofstream(path("run/metrics.jsonl")) << metrics;
  const auto copy = [&](const std::string& to) {
    std::filesystem::copy(
        path("run"), path(to),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  };
  for (const char* other : {"threads", "rates"})
    copy(other);
  // Neither another attempt nor another try of the user's gets past it.
  for (const char* restarts : {"--max-failures 2", ""}) {
    const size_t had = ranks_of_attempts("run").size();
    const auto resumed = start("run", "--workers 2 --resume auto " + std::string(restarts),
                               had == 1 ? "throw:phase=forward,rank=0,attempt=2" : "");
    EXPECT_EQ(resumed.code, 1);
    EXPECT_THAT(resumed.output, HasSubstr("[resume] expected the loss of step "));
    EXPECT_THAT(resumed.output, HasSubstr("bits deadbeef, got " + bits));
    EXPECT_EQ(ranks_of_attempts("run").size(), had == 1 ? 3U : 4U) << resumed.output;
  }
  std::filesystem::remove(path("run/first_loss.json"));
  ASSERT_EQ(start("run", "--workers 2 --resume auto").code, 0);
  expect_clean("run", {"step-00000008", "step-00000009"});

  // What may change bits is no error, also if the attempt that first had it came to nothing.
  const auto threads = start("threads", "--workers 2 --resume auto --threads 2");
  EXPECT_EQ(threads.code, 0) << threads.output;
  EXPECT_THAT(threads.output, HasSubstr("the run goes on with threads 2, before 1"));
  EXPECT_THAT(threads.output, HasSubstr(", with other threads\n"));
  EXPECT_EQ(start("rates", "--resume auto --lr 0.03", "throw:phase=forward,attempt=2").code, 1);
  const auto rates = start("rates", "--resume auto --lr 0.03");
  EXPECT_EQ(rates.code, 0) << rates.output;
  EXPECT_THAT(rates.output, HasSubstr("the run goes on with lr 0.03, before "));
  EXPECT_THAT(rates.output, HasSubstr(", with other lr\n"));
}

// Trying things in one folder needs no flag; work that took checkpoints is not lost without one.
TEST_F(RunResume, ARunWithoutCheckpointsIsReplaced) {
  auto words = words_of(std::string(WEFT_BIN_DIR) + "/mnist --model mlp --threads 1 --epochs 1 " +
                        "--global-batch 40 --data " + folder_ + " --run-dir " + path("run"));
  ASSERT_EQ(run_program(words).code, 0);
  words.insert(words.end(), {"--steps", "1"});
  const auto again = run_program(words);
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(steps("run"), 1U);
  words.insert(words.end(), {"--resume", "auto"});
  const auto finished = run_program(words);
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.output, HasSubstr("which has: --overwrite begins it anew"));
  EXPECT_EQ(steps("run"), 1U);
}

}  // namespace
}  // namespace weft::test
