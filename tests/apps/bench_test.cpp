// What `weft bench` promises to those who read its JSON lines, and how the programs refuse bad
// values.
#include "core/json.h"
#include "tests/support/runs.h"

#include <gtest/gtest.h>
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
  const auto line = Json::parse(test::read_file(json));
  EXPECT_EQ(line.at("bench"), "step");
  EXPECT_EQ(line.at("case"), "mlp");
  EXPECT_EQ(line.at("unit"), "images/s");
  for (const char* key : {"threads", "workers", "dtype", "median_seconds", "rate"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
}

TEST(WeftBench, StepShowsItsProfile) {
  const std::string out = testing::TempDir() + "/weft_bench_profile_" + std::to_string(getpid());
  const std::string command =
      std::string(WEFT_BIN_DIR) + "/weft bench step --model mlp --global-batch 8 --profile >" + out;
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream file(out);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const char* part : {"linear backward", "all operators", "outside operators", "fc1 ", "sgd"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  std::remove(out.c_str());
}

TEST(WeftBench, CommNamesOperationAndSizeAsItsCase) {
  for (const std::string backend : {"thread", "shm", "tcp", "gloo"}) {
    const std::string json = testing::TempDir() + "/weft_bench_comm_" + backend + ".jsonl";
    std::remove(json.c_str());
    ASSERT_EQ(
        exit_code("weft bench comm --op all_gather --workers 3 --bytes 1200,24000 --backend " +
                  backend + " --json " + json),
        0);
    std::ifstream file(json);
    for (const char* name : {"all_gather_1200", "all_gather_24000"}) {
      std::string text;
      ASSERT_TRUE(std::getline(file, text));
      const auto line = Json::parse(text);
      EXPECT_EQ(line.at("bench"), "comm");
      EXPECT_EQ(line.at("case"), name);
      EXPECT_EQ(line.at("workers"), 3);
      EXPECT_EQ(line.at("unit"), "GB/s bus");
      const double bus = std::stod(std::string(name).substr(11)) * 1e-9 * 2 / 3;
      EXPECT_NEAR(line.at("rate").get<double>() * line.at("median_seconds").get<double>(), bus,
                  bus * 1e-6);
    }
  }
}

TEST(Programs, RefuseBadValuesWithCodeTwo) {
  for (const char* command :
       {"weft bench step --model none", "weft bench step --model mlp --workers 2 --profile",
        "weft bench nothing", "weft bench comm --bytes 10", "weft bench comm --bytes 8,",
        "weft bench comm --op all_gather --workers 3 --bytes 16", "weft bench comm --backend none",
        "weft bench comm --backend mpi", "mnist --epochs 0", "mnist --lr x", "mnist --no-such-flag",
        "mnist --workers 2 --strategy single", "mnist --workers 3 --global-batch 128",
        "mnist --workers 4 --logical-shards 2", "mnist --logical-shards 8 --accumulate 2",
        "mnist --dtype f64", "mnist --resume nowhere", "mnist --accumulate 3",
        "mnist --memory-limit 0"}) {
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
