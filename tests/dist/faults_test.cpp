// Faults on purpose: how they are written, where they strike, what a seed draws.
#include "dist/faults.h"

#include "core/error.h"
#include "tests/support/processes.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <set>

namespace weft::test {
namespace {

using dist::Fault;
using dist::FaultAction;
using dist::Faults;
using dist::FaultTarget;
using dist::parse_faults;
using testing::HasSubstr;

std::string error_of_spec(const std::string& spec) {
  try {
    parse_faults(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Faults, AreParsed) {
  EXPECT_TRUE(parse_faults("").empty());
  EXPECT_TRUE(parse_faults("  ").empty());
  const auto faults = parse_faults(
      "kill:phase=rename,step=4,rank=2,call=3,target=all; "
      "delay : phase=forward , step=2-9, seconds=0.25, attempt=any;flip;"
      "leak:phase=data,bytes=4096,times=7");
  ASSERT_EQ(faults.size(), 4U);
  EXPECT_EQ(faults[0].action, FaultAction::kill);
  EXPECT_EQ(faults[0].target, FaultTarget::all);
  EXPECT_EQ(faults[0].phase, "rename");
  EXPECT_EQ(faults[0].first_step, 4);
  EXPECT_EQ(faults[0].last_step, 4);
  EXPECT_EQ(faults[0].rank, 2);
  EXPECT_EQ(faults[0].call, 3);
  EXPECT_EQ(faults[0].attempt, 1);
  EXPECT_EQ(faults[0].times, 1);
  EXPECT_EQ(dist::describe(faults[0]), "kill of all in rename #3 of step 4 on rank 2");
  EXPECT_EQ(faults[1].first_step, 2);
  EXPECT_EQ(faults[1].last_step, 9);
  EXPECT_EQ(faults[1].seconds, 0.25);
  EXPECT_EQ(faults[1].attempt, 0);
  EXPECT_EQ(faults[1].times, -1);
  EXPECT_EQ(faults[2].phase, "write");
  EXPECT_EQ(faults[3].bytes, 4096);
  EXPECT_EQ(faults[3].times, 7);
}

TEST(Faults, ThatMakeNoSenseAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"burn:phase=data", "expected one of kill, stop, delay"},
      {"kill:phase=lunch", "expected a phase (start, load, data"},
      {"kill", "expected a phase"},
      {"kill:phase", "expected key=value, got 'phase'"},
      {"kill:phase=data,phase=data", "expected phase once"},
      {"kill:phase=data,step=x", "expected a step of at least 0, got 'x'"},
      {"kill:phase=data,step=5-3", "expected a last step of at least 5, got '3'"},
      {"kill:phase=data,rank=-1", "expected a rank of at least 0, got '-1'"},
      {"kill:phase=data,attempt=0", "expected 'any' or an attempt of at least 1"},
      {"kill:phase=data,colour=red", "expected one of phase, step, rank"},
      {"kill:phase=data,seconds=1", "expected seconds only with delay"},
      {"delay:phase=data,seconds=-1", "expected seconds in [0, 1e6]"},
      {"stop:phase=data,target=all", "expected target only with kill"},
      {"kill:phase=data,target=us", "expected target=rank, supervisor or all"},
      {"fill:phase=forward", "expected phase open, write, fsync, rename or remove for fill"},
      {"flip:phase=fsync", "expected phase write for flip"},
      {"kill:phase=data,steps=4", "expected steps only with a seed"},
      {"kill:phase=data;", "expected one of kill"},
  };
  for (const auto& [spec, message] : cases)
    EXPECT_THAT(error_of_spec(spec), HasSubstr(message)) << spec;
}

TEST(Faults, StrikeWhereTheyAreMeantTo) {
  const auto faults = parse_faults("throw:phase=backward,step=3,rank=1");
  const Faults others(faults, 0, 2, 1);
  const Faults later(faults, 1, 2, 2);
  EXPECT_TRUE(others.empty());
  EXPECT_TRUE(later.empty());
  const Faults here(faults, 1, 2, 1);
  EXPECT_TRUE(here.any("backward"));
  EXPECT_FALSE(here.any("forward"));
  here.at("backward", 2);
  here.at("forward", 3);
  try {
    here.at("backward", 3);
    ADD_FAILURE() << "nothing struck";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[inject] expected no fault, got a throw in backward of step 3 on rank 1");
  }
  here.at("backward", 3);  // once
}

TEST(Faults, CountCallsWithinAStep) {
  const Faults faults(parse_faults("fill:step=2-3,call=2"), 0, 1, 1);
  std::vector<std::pair<int64_t, int>> struck;
  for (int64_t step = 1; step <= 4; ++step) {
    for (int call = 1; call <= 3; ++call) {
      const Faults::Struck what = faults.at("write", step);
      EXPECT_FALSE(what.flip);
      if (what.fill) struck.emplace_back(step, call);
    }
  }
  EXPECT_EQ(struck, (std::vector<std::pair<int64_t, int>>{{2, 2}, {3, 2}}));
}

TEST(Faults, AreDrawnFromTheirSeed) {
  std::set<std::string> phases;
  std::set<int64_t> ranks;
  std::set<int64_t> steps;
  for (int seed = 0; seed < 200; ++seed) {
    const std::string spec = "kill:steps=6,seed=" + std::to_string(seed);
    const Fault fault = dist::drawn(parse_faults(spec)[0], 3);
    const Fault again = dist::drawn(parse_faults(spec)[0], 3);
    EXPECT_EQ(dist::describe(fault), dist::describe(again));
    phases.insert(fault.phase);
    ranks.insert(fault.rank);
    steps.insert(fault.first_step);
    // What is given holds, and does not change the rest.
    const Fault part = dist::drawn(parse_faults(spec + ",rank=1")[0], 3);
    EXPECT_EQ(part.rank, 1);
    EXPECT_EQ(part.phase, fault.phase);
    EXPECT_EQ(part.first_step, fault.first_step);
  }
  EXPECT_EQ(phases.size(), dist::kFaultPhases.size() - 2);  // all in which there is a step
  EXPECT_EQ(ranks, (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(steps, (std::set<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Faults, EndAProcess) {
  const auto outcomes = run_processes(2, [](int rank) {
    const Faults faults(parse_faults("kill:phase=optimizer,step=2,rank=1"), rank, 2, 1);
    for (int64_t step = 1; step <= 3; ++step)
      faults.at("optimizer", step);
    return std::string("ended");
  });
  EXPECT_EQ(outcomes[0].text, "ended");
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
}

}  // namespace
}  // namespace weft::test
