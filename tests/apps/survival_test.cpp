// Runs that are killed, stopped, starved of disk and moved to other numbers of ranks: they go on
// from a whole checkpoint, end as if nothing had been, and leave nothing behind.
//
// WEFT_KILLS=N makes the seeded kills N (scripts/kill_test.sh).
#include "tests/apps/app_runs.h"

namespace weft::test {
namespace {

class Survival : public AppRuns {};

TEST_F(Survival, OfSeededKillsInEveryPhase) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto expected = outcome("whole");
  ASSERT_EQ(steps("whole"), 9U);
  const char* given = std::getenv("WEFT_KILLS");
  const int kills = given ? std::atoi(given) : 15;
  const char* strategies[] = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
  const char* targets[] = {"rank", "supervisor", "all"};
  int struck = 0;
  for (int seed = 1; seed <= kills; ++seed) {
    const std::string run = "run" + std::to_string(seed);
    const std::string ranks = std::to_string(2 + seed % 2);
    const std::string flags = "--max-failures 2 --min-workers 1 --workers " + ranks +
                              " --strategy " + strategies[seed % 5];
    const std::string inject =
        "kill:steps=9,seed=" + std::to_string(seed) + ",target=" + targets[seed % 3];
    SCOPED_TRACE(flags + " --inject " + inject);
    ProgramResult result = start(run, flags, inject);
    if (result.code != 0) {
      EXPECT_EQ(result.code, 128 + SIGKILL) << result.output;
      EXPECT_NE(seed % 3, 0) << result.output;
      ++struck;
      // The supervisor is gone, and its ranks with it. A run that had come to its end has its
      // result.
      if (!std::filesystem::exists(path(run + "/result.json"))) {
        result = start(run, flags + " --resume auto");
        ASSERT_EQ(result.code, 0) << result.output;
      }
    } else if (restarts(run) > 0) {
      ++struck;
      EXPECT_EQ(restarts(run), 1);
    }
    EXPECT_EQ(outcome(run), expected) << result.output;
    expect_clean(run, {"step-00000008", "step-00000009"});
    if (HasFailure()) return;
    std::filesystem::remove_all(path(run));
  }
  EXPECT_GE(struck, kills / 2);  // some draw a call that never comes
}

TEST_F(Survival, OfEveryOperationOfASave) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto expected = outcome("whole");
  int struck = 0;
  // A save makes a folder and files, writes them, syncs each and the folders, renames one, and
  // removes what is older.
  const std::pair<const char*, int> operations[] = {
      {"snapshot", 1}, {"open", 1},  {"open", 2},  {"write", 1},  {"write", 2}, {"write", 3},
      {"fsync", 1},    {"fsync", 2}, {"fsync", 3}, {"rename", 1}, {"remove", 1}};
  for (const auto& [phase, call] : operations) {
    const std::string run = std::string(phase) + std::to_string(call);
    const auto result =
        start(run, "--max-failures 1 --workers 2 --strategy fsdp",
              "kill:step=6-9,phase=" + std::string(phase) + ",rank=0,call=" + std::to_string(call));
    SCOPED_TRACE(run);
    ASSERT_EQ(result.code, 0) << result.output;
    struck += restarts(run) > 0;
    EXPECT_EQ(outcome(run), expected) << result.output;
    expect_clean(run, {"step-00000008", "step-00000009"});
    if (HasFailure()) return;
  }
  EXPECT_GE(struck, 8);
}

}  // namespace
}  // namespace weft::test
