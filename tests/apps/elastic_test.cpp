// Runs whose number of ranks changes, which are asked to stop, stand still, or run out of disk; and
// folders that are in use, finished, or damaged.
#include "tests/apps/app_runs.h"

namespace weft::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Elastic : public AppRuns {
 protected:
  // Steps that take a while, so that there is time to do something to the run.
  static constexpr const char* kSlow = "delay:phase=data,rank=0,seconds=0.02,attempt=any";
  std::vector<std::string> slow(const std::string& run, const std::string& more) const {
    auto words = command(run, more + " --epochs 30");
    words.insert(words.end(), {"--inject", kSlow});
    return words;
  }
  // Neither the supervisor nor the guardian, whose command lines are the same.
  std::vector<pid_t> ranks_of(const std::string& run) const {
    std::vector<pid_t> ranks = processes_with(path(run));
    std::erase_if(ranks, [](pid_t process) {
      return read_file("/proc/" + std::to_string(process) + "/environ").find("WEFT_RANK=") ==
             std::string::npos;
    });
    return ranks;
  }
};

TEST_F(Elastic, RanksComeAndGoAndTheCurveStaysTheSame) {
  ASSERT_EQ(start("whole", "--epochs 30").code, 0);
  Program program(slow("run", "--workers 8 --min-workers 2 --max-failures 2 --strategy zero1"));
  ASSERT_TRUE(comes_true([&] { return steps("run") >= 5; }));
  // Four places go, with notice: no failure.
  std::ofstream(path("run/places")) << "4\n";
  ASSERT_TRUE(comes_true([&] { return ranks_of_attempts("run").size() == 2; }));
  const size_t before = steps("run");
  ASSERT_TRUE(comes_true([&] { return steps("run") >= before + 5; }));
  // Two more, without: the supervisor is not even told before a rank is killed.
  const auto ranks = ranks_of("run");
  ASSERT_FALSE(ranks.empty());
  std::ofstream(path("run/places.new")) << "2\n";
  kill(ranks.back(), SIGKILL);
  std::filesystem::rename(path("run/places.new"), path("run/places"));
  ASSERT_TRUE(comes_true([&] { return ranks_of_attempts("run").size() == 3; }));
  const size_t then = steps("run");
  ASSERT_TRUE(comes_true([&] { return steps("run") >= then + 5; }));
  std::ofstream(path("run/places")) << "8\n";
  const ProgramResult result = program.wait();
  ASSERT_EQ(result.code, 0) << result.output;
  const auto had = ranks_of_attempts("run");
  ASSERT_GE(had.size(), 4U) << result.output;
  EXPECT_EQ(had[0], 8);
  EXPECT_EQ(had[1], 4);
  EXPECT_EQ(had[had.size() - 2], 2);
  EXPECT_EQ(had.back(), 8);
  EXPECT_EQ(outcome("run"), outcome("whole")) << result.output;
  expect_clean("run", {"step-00000088", "step-00000090"});
}

TEST_F(Elastic, FromTenRanksToEight) {
  const std::string shards = "--logical-shards 16 --global-batch 48 ";
  ASSERT_EQ(start("whole", shards + "--epochs 30").code, 0);
  Program program(slow("run", shards + "--workers 10 --min-workers 8"));
  ASSERT_TRUE(comes_true([&] { return steps("run") >= 5; }));
  std::ofstream(path("run/places")) << "8\n";
  const ProgramResult result = program.wait();
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(ranks_of_attempts("run"), ElementsAre(10, 8)) << result.output;
  EXPECT_EQ(outcome("run"), outcome("whole")) << result.output;
}

TEST_F(Elastic, TooFewPlacesEndTheRunWhichCanBeResumed) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto result = start("run", "--workers 3 --min-workers 3 --max-failures 2",
                            "lose:phase=backward,step=6,rank=1");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, HasSubstr("expected places for at least 3 ranks (--min-workers), got "
                                       "2 of 3"));
  const auto again = start("run", "--workers 3 --min-workers 2 --resume auto");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_THAT(ranks_of_attempts("run"), ElementsAre(3, 2));
  EXPECT_EQ(outcome("run"), outcome("whole"));
}

TEST_F(Elastic, SigtermSavesAndEnds) {
  ASSERT_EQ(start("whole", "--epochs 30").code, 0);
  for (const char* ranks : {"--workers 3 --strategy fsdp", "--workers 1"}) {
    SCOPED_TRACE(ranks);
    Program program(slow("run", std::string(ranks) + " --checkpoint-every 1000"));
    ASSERT_TRUE(comes_true([&] { return steps("run") >= 4; }));
    program.signal(SIGTERM);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.code, 128 + SIGTERM) << result.output;
    EXPECT_THAT(result.output, HasSubstr("which is saved: --resume auto goes on"));
    ASSERT_EQ(checkpoints("run").size(), 1U);
    EXPECT_FALSE(std::filesystem::exists(path("run/result.json")));
    const auto rest = start("run", std::string(ranks) + " --epochs 30 --resume auto");
    ASSERT_EQ(rest.code, 0) << rest.output;
    EXPECT_EQ(restarts("run"), 1);
    EXPECT_EQ(outcome("run"), outcome("whole")) << rest.output;
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(Elastic, SigtermSaysWhatCouldNotBeSaved) {
  const auto stopped = [&](const std::string& more, const std::string& faults) {
    auto words =
        command("run", "--epochs 300 --checkpoint-every 1000 --on-save-error continue" + more);
    words.insert(words.end(), {"--inject", kSlow + faults});
    const size_t before = steps("run");
    Program program(words);
    EXPECT_TRUE(comes_true([&] { return steps("run") >= before + 3; }));
    program.signal(SIGTERM);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.code, 128 + SIGTERM) << result.output;
    return result.output;
  };
  EXPECT_THAT(stopped("", ""), HasSubstr(", which is saved: --resume auto goes on\n"));
  const std::string saved = std::to_string(steps("run"));
  EXPECT_THAT(stopped(" --resume auto", ";fill:attempt=2"),
              AllOf(HasSubstr("No space left on device"),
                    HasSubstr(", which could not be saved: --resume auto goes on from step " +
                              saved + "\n")));
}

TEST_F(Elastic, ARankThatStandsStillCountsAsFailed) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto result = start("run", "--workers 2 --max-failures 1 --heartbeat 0.3 --timeout 60",
                            "stop:phase=forward,step=5,rank=1");
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank 1 has made no progress for "));
  EXPECT_THAT(result.output, HasSubstr("(it is stopped): ending it"));
  EXPECT_EQ(restarts("run"), 1);
  EXPECT_EQ(outcome("run"), outcome("whole"));
  expect_clean("run", {"step-00000008", "step-00000009"});
}

TEST_F(Elastic, FailuresAreCountedOverTheJob) {
  const auto result = start("run", "--workers 2 --max-failures 2",
                            "throw:phase=optimizer,step=3,rank=0,attempt=any");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, HasSubstr("a throw in optimizer of step 3 on rank 0"));
  EXPECT_THAT(result.output, HasSubstr("failure 3 is one more than --max-failures 2"));
  EXPECT_EQ(ranks_of_attempts("run").size(), 3U);
  // Each attempt has its own logs, and the others' verdict names the culprit.
  for (int attempt = 1; attempt <= 3; ++attempt)
    EXPECT_THAT(read_file(path("run/attempts/" + std::to_string(attempt) + "/logs/rank-1.log")),
                HasSubstr("got no rank 0"));
  EXPECT_FALSE(std::filesystem::exists(path("run/result.json")));
}

TEST_F(Elastic, AFullDiskEndsTheRunOrNotAsAskedFor) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto ended = start("run", "--workers 2 --strategy fsdp", "fill:step=4,rank=1");
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("No space left on device"));
  EXPECT_THAT(ended.output, HasSubstr("rank 1"));
  EXPECT_EQ(checkpoints("run"), (std::vector<std::string>{"step-00000002"}));
  const auto rest = start("run", "--workers 2 --strategy fsdp --resume auto");
  ASSERT_EQ(rest.code, 0) << rest.output;
  EXPECT_EQ(outcome("run"), outcome("whole"));

  const auto went_on =
      start("other", "--workers 2 --strategy fsdp --on-save-error continue", "fill:step=4,rank=1");
  ASSERT_EQ(went_on.code, 0) << went_on.output;
  EXPECT_THAT(went_on.output, HasSubstr("No space left on device"));
  EXPECT_EQ(outcome("other"), outcome("whole"));
  expect_clean("other", {"step-00000008", "step-00000009"});
}

TEST_F(Elastic, ADamagedCheckpointIsPassedOver) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto result = start("run", "--workers 2 --max-failures 1 --checkpoint-every 3",
                            "flip:step=6,rank=0,call=2;kill:phase=snapshot,step=9,rank=1");
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("passed over a damaged checkpoint"));
  EXPECT_THAT(result.output, HasSubstr("step-00000006"));
  EXPECT_EQ(restarts("run"), 1);
  EXPECT_EQ(outcome("run"), outcome("whole"));
  // It is not for a program to decide that nothing of it is of use.
  expect_clean("run", {"step-00000006", "step-00000006.damaged", "step-00000009"});
}

TEST_F(Elastic, FoldersAreNotUsedTwice) {
  {
    Program program(slow("run", "--workers 2"));
    ASSERT_TRUE(comes_true([&] { return steps("run") >= 2; }));
    const auto second = start("run", "--workers 2");
    EXPECT_EQ(second.code, 1);
    EXPECT_THAT(second.output, HasSubstr("in which one is at work"));
    EXPECT_EQ(ranks_of("run").size(), 2U);
  }
  // Killed: it has checkpoints that a new run would lose.
  EXPECT_TRUE(comes_true([&] { return processes_with(path("run")).empty(); }));
  const auto anew = start("run", "");
  EXPECT_EQ(anew.code, 1);
  EXPECT_THAT(anew.output, HasSubstr("--resume auto goes on from them, --overwrite begins anew"));
  ASSERT_EQ(start("run", "--epochs 30 --resume auto").code, 0);
  const auto finished = start("run", "--epochs 30 --resume auto");
  EXPECT_EQ(finished.code, 1);
  EXPECT_THAT(finished.output, HasSubstr("which has: --overwrite begins it anew"));
  ASSERT_EQ(start("run", "--overwrite").code, 0);
  EXPECT_EQ(steps("run"), 9U);
  EXPECT_EQ(restarts("run"), 0);
}

TEST_F(Elastic, TheSlowestRankAndAGrowingOneAreNamed) {
  auto words = words_of(std::string(WEFT_BIN_DIR) +
                        "/mnist --model mlp --threads 1 --global-batch 40 --epochs 30 --workers 2 "
                        "--data " +
                        folder_ + " --run-dir " + path("slow"));
  words.insert(words.end(), {"--inject", "delay:phase=forward,rank=1,seconds=0.03"});
  const auto slowest = run_program(words);
  ASSERT_EQ(slowest.code, 0) << slowest.output;
  EXPECT_THAT(slowest.output, HasSubstr("rank 1 is the slowest: "));
  EXPECT_THAT(slowest.output, HasSubstr(" in forward (steps "));
  EXPECT_THAT(slowest.output, Not(HasSubstr("grows by")));

  words = words_of(std::string(WEFT_BIN_DIR) +
                   "/mnist --model mlp --threads 1 --global-batch 10 --epochs 30 --data " +
                   folder_ + " --run-dir " + path("growing"));
  words.insert(words.end(), {"--inject",
                             "leak:phase=data,bytes=2000000;delay:phase=optimizer,"
                             "seconds=0.006"});
  const auto growing = run_program(words);
  ASSERT_EQ(growing.code, 0) << growing.output;
  EXPECT_THAT(growing.output, HasSubstr("mnist: rank 0 grows by "));
  EXPECT_THAT(growing.output, HasSubstr(" in 100 steps: "));
}

TEST_F(Elastic, FlagsThatMakeNoSenseTogetherAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"--max-failures 1 --min-workers 3 --workers 2", "--min-workers: expected at most the 2"},
      {"--min-workers 1 --workers 2",
       "--min-workers: expected --max-failures or --checkpoint-every"},
      {"--keep 2", "--keep: expected --checkpoint-every"},
      {"--on-save-error continue", "--on-save-error: expected --checkpoint-every"},
      {"--heartbeat 3", "--heartbeat: expected several --workers"},
      {"--resume nowhere", "--resume: expected auto, none or the folder of a checkpoint"},
      {"--resume auto --overwrite", "--overwrite: expected no --resume auto"},
      {"--inject burn", "--inject: [inject] expected one of kill, stop"},
      {"--inject kill:phase=dinner", "--inject: [inject] expected a phase"},
  };
  for (const auto& [flags, message] : cases) {
    auto words = words_of(std::string(WEFT_BIN_DIR) + "/mnist " + flags);
    const auto result = run_program(words);
    EXPECT_EQ(result.code, 2) << flags;
    EXPECT_THAT(result.output, HasSubstr(message)) << flags;
  }
}

}  // namespace
}  // namespace weft::test
