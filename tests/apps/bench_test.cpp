// What `weft bench` promises to those who read its JSON lines, and how the programs refuse bad
// values.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace weft {
namespace {

// Runs a program of the build; its output is dropped.
int exit_code(const std::string& command) {
  const int status =
      std::system((std::string(WEFT_BIN_DIR) + "/" + command + " >/dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(WeftBench, StepNamesTheModelAsItsCase) {
  const std::string json = testing::TempDir() + "/weft_bench_step.jsonl";
  std::remove(json.c_str());
  ASSERT_EQ(exit_code("weft bench step --model mlp --global-batch 8 --json " + json), 0);
  std::ifstream file(json);
  const auto line = nlohmann::json::parse(file);
  EXPECT_EQ(line.at("bench"), "step");
  EXPECT_EQ(line.at("case"), "mlp");
  EXPECT_EQ(line.at("unit"), "images/s");
  for (const char* key : {"threads", "workers", "dtype", "median_seconds", "rate"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

TEST(Programs, RefuseBadValuesWithCodeTwo) {
  for (const char* command :
       {"weft bench step --model none", "weft bench nothing", "mnist --epochs 0", "mnist --lr x",
        "mnist --no-such-flag", "mnist --workers 2", "mnist --strategy fsdp", "mnist --dtype f16",
        "mnist --resume auto", "mnist --accumulate 3", "mnist --memory-limit 0"}) {
    EXPECT_EQ(exit_code(command), 2) << command;
  }
}

TEST(Programs, FailWithCodeOneAndLeaveNoResult) {
  const std::string run = testing::TempDir() + "/weft_failed_run";
  EXPECT_EQ(exit_code("mnist --data no/such/folder --run-dir " + run), 1);
  EXPECT_NE(access((run + "/result.json").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace weft
