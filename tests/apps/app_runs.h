// Runs of mnist for tests of what they survive: small, with checkpoints, and what must not depend
// on anything that has happened to them.
#pragma once

#include "core/json.h"
#include "tests/support/processes.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace weft::test {

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

class AppRuns : public testing::Test {
 protected:
  AppRuns() {
    for (const char* variable : {"WEFT_BACKEND", "OMP_NUM_THREADS"})
      unsetenv(variable);
    write_images(folder_ + "/train", 90);
    write_images(folder_ + "/t10k", 50);
  }

  // Three steps an epoch, and a checkpoint after every second one; `more` may say otherwise.
  std::vector<std::string> command(const std::string& run, const std::string& more) const {
    std::vector<std::string> words = {std::string(WEFT_BIN_DIR) + "/mnist", "--flip"};
    const std::vector<std::string> given = words_of(more);
    const std::pair<const char*, std::string> usual[] = {
        {"--model", "mlp"},        {"--threads", "1"},
        {"--logical-shards", "8"}, {"--global-batch", "40"},
        {"--epochs", "3"},         {"--checkpoint-every", "2"},
        {"--keep", "2"},           {"--data", folder_},
        {"--run-dir", path(run)},  {"--export", path(run + ".export")}};
    for (const auto& [flag, value] : usual) {
      if (std::count(given.begin(), given.end(), flag) == 0)
        words.insert(words.end(), {flag, value});
    }
    words.insert(words.end(), given.begin(), given.end());
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
    const auto result = Json::parse(read_file(path(run + "/result.json")));
    bits.push_back(result.at("final").dump());
    const std::string last = checkpoints(run).empty() ? "" : checkpoints(run).back();
    const auto manifest =
        Json::parse(read_file(path(run + "/checkpoints/" + last + "/manifest.json")));
    bits.push_back(manifest.at("digest").dump());
    return bits;
  }
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path(run + "/checkpoints"), error))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  int64_t restarts(const std::string& run) const {
    return Json::parse(read_file(path(run + "/result.json"))).at("restarts").get<int64_t>();
  }
  std::vector<int> ranks_of_attempts(const std::string& run) const {
    std::vector<int> ranks;
    for (int n = 1;; ++n) {
      const std::string text =
          read_file(path(run + "/attempts/" + std::to_string(n) + "/attempt.json"));
      if (text.empty()) return ranks;
      ranks.push_back(Json::parse(text).at("ranks").get<int>());
    }
  }
  size_t steps(const std::string& run) const {
    const std::string text = read_file(path(run + "/metrics.jsonl"));
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // Nothing but the run's own files, and nobody at work.
  void expect_clean(const std::string& run, const std::vector<std::string>& kept) const {
    EXPECT_EQ(checkpoints(run), kept);
    const std::set<std::string> known = {"attempts",      "checkpoints",   "logs",
                                         "metrics.jsonl", "reports.jsonl", "result.json",
                                         "run.json",      "places"};
    for (const auto& entry : std::filesystem::directory_iterator(path(run)))
      EXPECT_TRUE(known.count(entry.path().filename().string())) << entry.path();
    EXPECT_TRUE(comes_true([&] { return processes_with(path(run)).empty(); }));
    EXPECT_TRUE(leftovers().empty());
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
};

}  // namespace weft::test
