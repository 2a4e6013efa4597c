// Runs that are killed, stopped, starved of disk and moved to other numbers of ranks: they go on
// from a whole checkpoint, end as if nothing had been, and leave nothing behind.
//
// WEFT_KILLS=N makes the seeded kills N (scripts/kill_test.sh).
#include "tests/support/processes.h"
#include "tests/support/runs.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace weft::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

class Survival : public testing::Test {
 protected:
  Survival() {
    std::string name = testing::TempDir() + "weft-survival-XXXXXX";
    folder_ = mkdtemp(name.data());
    for (const char* variable : {"WEFT_BACKEND", "OMP_NUM_THREADS"})
      unsetenv(variable);
    write_images(folder_ + "/train", 90);
    write_images(folder_ + "/t10k", 50);
  }
  ~Survival() override { std::filesystem::remove_all(folder_); }

  // Three steps an epoch, and a checkpoint after every second one.
  std::vector<std::string> command(const std::string& run, const std::string& more) const {
    std::vector<std::string> words = {std::string(WEFT_BIN_DIR) + "/mnist"};
    const std::string text =
        "--model mlp --threads 1 --logical-shards 8 --global-batch 40 --epochs 3 --flip "
        "--checkpoint-every 2 --keep 2 --data " +
        folder_ + " --run-dir " + path(run) + " --export " + path(run + ".export") + " " + more;
    for (const std::string& word : words_of(text))
      words.push_back(word);
    return words;
  }
  // The last word may hold spaces: a fault.
  ProgramResult start(const std::string& run, const std::string& more,
                      const std::string& inject = "") const {
    auto words = command(run, more);
    if (!inject.empty()) words.insert(words.end(), {"--inject", inject});
    return run_program(words);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // All that must not depend on what has happened to a run.
  std::vector<std::string> outcome(const std::string& run) const {
    std::vector<std::string> bits = column(path(run + "/metrics.jsonl"), "loss_bits");
    const std::vector<std::string> steps = column(path(run + "/metrics.jsonl"), "step");
    bits.insert(bits.end(), steps.begin(), steps.end());
    bits.push_back(read_file(path(run + ".export")));
    const auto result = nlohmann::json::parse(read_file(path(run + "/result.json")));
    bits.push_back(result.at("final").dump());
    const std::string last = checkpoints(run).empty() ? "" : checkpoints(run).back();
    const auto manifest =
        nlohmann::json::parse(read_file(path(run + "/checkpoints/" + last + "/manifest.json")));
    bits.push_back(manifest.at("digest").dump());
    return bits;
  }
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(path(run + "/checkpoints"), error))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  int64_t restarts(const std::string& run) const {
    return nlohmann::json::parse(read_file(path(run + "/result.json"))).at("restarts");
  }
  std::vector<int> ranks_of_attempts(const std::string& run) const {
    std::vector<int> ranks;
    for (int n = 1;; ++n) {
      const std::string text =
          read_file(path(run + "/attempts/" + std::to_string(n) + "/attempt.json"));
      if (text.empty()) return ranks;
      ranks.push_back(nlohmann::json::parse(text).at("ranks"));
    }
  }
  size_t steps(const std::string& run) const {
    const std::string text = read_file(path(run + "/metrics.jsonl"));
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // Nothing but the run's own files, and nobody at work.
  void expect_clean(const std::string& run, const std::vector<std::string>& kept) const {
    EXPECT_EQ(checkpoints(run), kept);
    const std::set<std::string> known = {"attempts",      "checkpoints", "logs",    "metrics.jsonl",
                                         "reports.jsonl", "result.json", "run.json", "places"};
    for (const auto& entry : std::filesystem::directory_iterator(path(run)))
      EXPECT_TRUE(known.count(entry.path().filename().string())) << entry.path();
    EXPECT_TRUE(comes_true([&] { return processes_with(path(run)).empty(); }));
    EXPECT_TRUE(leftovers().empty());
  }

  std::string folder_;
};

TEST_F(Survival, OfSeededKillsInEveryPhase) {
  ASSERT_EQ(start("whole", "").code, 0);
  const auto expected = outcome("whole");
  ASSERT_EQ(steps("whole"), 9U);
  const char* given = std::getenv("WEFT_KILLS");
  const int kills = given ? std::atoi(given) : 24;
  const char* strategies[] = {"ddp", "zero1", "zero2", "zero3", "fsdp"};
  const char* targets[] = {"rank", "supervisor", "all"};
  int struck = 0;
  for (int seed = 1; seed <= kills; ++seed) {
    const std::string run = "run" + std::to_string(seed);
    const std::string ranks = std::to_string(2 + seed % 2);
    const std::string flags = "--max-failures 2 --min-workers 1 --workers " + ranks +
                              " --strategy " + strategies[seed % 5];
    const std::string inject = "kill:steps=9,seed=" + std::to_string(seed) +
                               ",target=" + targets[seed % 3];
    SCOPED_TRACE(flags + " --inject " + inject);
    ProgramResult result = start(run, flags, inject);
    if (result.code != 0) {
      EXPECT_EQ(result.code, 128 + SIGKILL) << result.output;
      EXPECT_NE(seed % 3, 0) << result.output;
      ++struck;
      // The supervisor is gone, and its ranks with it. A run that had come to its end has its result.
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
  for (const char* phase : {"snapshot", "open", "write", "fsync", "rename"}) {
    for (int call = 1; call <= 3; ++call) {
      const std::string run = std::string(phase) + std::to_string(call);
      const auto result = start(run, "--max-failures 1 --workers 2 --strategy fsdp",
                                concat_fault(phase, call));
      SCOPED_TRACE(run);
      ASSERT_EQ(result.code, 0) << result.output;
      struck += restarts(run) > 0;
      EXPECT_EQ(outcome(run), expected) << result.output;
      expect_clean(run, {"step-00000008", "step-00000009"});
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(struck, 8);
}

}  // namespace
}  // namespace weft::test
