// A rank that is killed, stopped, or late beyond the timeout, in any phase of a step, under every
// strategy, by the command line: each other rank ends with a verdict that names it and the
// collective it was missed in, and nothing is left behind.
//
// WEFT_ALL_FAULTS=1 tries every rank and every fault in every phase, not one of them in turn.
#include "tests/apps/app_runs.h"

namespace weft::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr const char* kPhases[] = {"data", "forward", "backward", "communication", "optimizer"};
constexpr const char* kActions[] = {"kill", "stop", "delay"};

class FaultRows : public AppRuns, public testing::WithParamInterface<const char*> {
 protected:
  void expect_verdicts(const std::string& action, const std::string& phase, int victim) const {
    const std::string run = concat({action, "-", phase, "-", victim});
    SCOPED_TRACE(run);
    std::string fault = concat({action, ":phase=", phase, ",step=4,rank=", victim});
    if (action == "delay") fault += ",seconds=1000";
    // No shorter timeout: a busy machine may keep any rank from running for a while.
    const auto result =
        start(run, concat({"--workers ", kRanks, " --timeout 3 --strategy ", GetParam()}), fault);
    EXPECT_NE(result.code, 0) << result.output;
    const std::string what =
        action == "kill" ? "it (died \\(process |has left)" : "it did not come within 3\\.";
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const std::string log =
          read_file(path(concat({run, "/attempts/1/logs/rank-", rank, ".log"})));
      EXPECT_THAT(log, ContainsRegex("(all_reduce|reduce_scatter|all_gather|broadcast|barrier) "
                                     "#[0-9]+ of 'world"))
          << rank;
      EXPECT_THAT(log, ContainsRegex(concat({"got no rank (", victim,
                                             "|[0-9] \\(of the job: ", victim, "\\)): ", what})))
          << rank;
    }
    EXPECT_FALSE(std::filesystem::exists(path(run + "/result.json")));
    EXPECT_TRUE(comes_true([&] { return processes_with(path(run)).empty(); }));
    EXPECT_THAT(leftovers(), testing::IsEmpty());
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, FaultRows,
                         testing::Values("ddp", "zero1", "zero2", "zero3", "fsdp"),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(FaultRows, TheOthersNameTheRankThatIsMissed) {
  const bool all = std::getenv("WEFT_ALL_FAULTS") != nullptr;
  int turn = static_cast<int>(GetParam()[std::string(GetParam()).size() - 1]);
  for (const char* phase : kPhases) {
    for (int action = 0; action < 3; ++action) {
      for (int victim = 0; victim < kRanks; ++victim) {
        const bool its_turn = turn % 3 == action && turn / 3 % kRanks == victim;
        if (all || its_turn) expect_verdicts(kActions[action], phase, victim);
        if (HasFailure()) return;
      }
    }
    turn += 4;
  }
}

}  // namespace
}  // namespace weft::test
