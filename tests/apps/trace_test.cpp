// --trace: every rank is in the file, and communication goes on while its rank computes.
#include "core/json.h"
#include "tests/support/runs.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {

struct Interval {
  double begin, end;
};

Interval interval_of(const Json& event) {
  const auto begin = event.at("ts").get<double>();
  return {begin, begin + event.at("dur").get<double>()};
}

// How much of `whole` none of `others` covers; they do not overlap each other.
double uncovered(const Interval& whole, const std::vector<Interval>& others) {
  double left = whole.end - whole.begin;
  for (const Interval& other : others)
    left -= std::max(0.0, std::min(whole.end, other.end) - std::max(whole.begin, other.begin));
  return left;
}

// What the file says of one rank.
struct RankTrace {
  std::string name;
  std::map<int, std::string> tracks;
  std::map<std::string, std::vector<Interval>> compute;  // by phase
  std::vector<Interval> waits;
  std::vector<Json> collectives;

  // Calls of a collective that ran, for a part of their time, within `phase`, while the rank's own
  // thread waited for nothing.
  int64_t beside(const std::string& phase, const std::string& collective) const {
    int64_t count = 0;
    for (const auto& event : collectives) {
      if (event.at("args").at("collective") != collective) continue;
      const Interval whole = interval_of(event);
      for (const Interval& computing : compute.at(phase)) {
        const Interval both{std::max(whole.begin, computing.begin),
                            std::min(whole.end, computing.end)};
        if (both.end > both.begin && uncovered(both, waits) > 0.5) {
          ++count;
          break;
        }
      }
    }
    return count;
  }
};

std::map<int, RankTrace> read_trace(const std::string& path) {
  const auto json = Json::parse(test::read_file(path));
  std::map<int, RankTrace> ranks;
  for (const auto& event : json.at("traceEvents").elements()) {
    RankTrace& rank = ranks[event.at("pid").get<int>()];
    const int track = event.at("tid").get<int>();
    if (event.at("ph") == "M") {
      const std::string& name = event.at("args").at("name").text();
      if (event.at("name") == "process_name") rank.name = name;
      if (event.at("name") == "thread_name") rank.tracks[track] = name;
      continue;
    }
    EXPECT_EQ(event.at("ph").text(), "X");
    EXPECT_GE(event.at("ts").get<double>(), 0) << event.dump();
    EXPECT_GE(event.at("dur").get<double>(), 0) << event.dump();
    if (event.contains("cat")) {
      rank.collectives.push_back(event);
    } else if (track == 1) {
      rank.waits.push_back(interval_of(event));
    } else {
      rank.compute[event.at("name").text()].push_back(interval_of(event));
    }
  }
  return ranks;
}

class TraceFlag : public testing::Test {
 protected:
  TraceFlag() {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 200; ++i)
      text << "some text to learn, " << i % 7 << "\n";
  }
  ~TraceFlag() override { std::filesystem::remove_all(folder_); }

  int run(const std::string& flags, const std::string& trace = "/trace.json") const {
    const std::string command = std::string(WEFT_BIN_DIR) + "/gpt --data " + folder_ +
                                "/text.txt --run-dir " + folder_ +
                                "/run --layers 4 --width 64 --heads 2 --context 32 --threads 1 "
                                "--sample 0 --global-batch 16 --epochs 1 --trace " +
                                folder_ + trace + " " + flags + " >" + folder_ + "/out 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output() const {
    std::ifstream in(folder_ + "/out");
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string folder_ = testing::TempDir() + "/weft_trace_" + std::to_string(getpid());
};

TEST_F(TraceFlag, ShowsEveryRankAndCommunicationBesideComputation) {
  ASSERT_EQ(run("--workers 2 --strategy fsdp --steps 6"), 0) << output();
  auto ranks = read_trace(folder_ + "/trace.json");
  ASSERT_EQ(ranks.size(), 2U);
  for (const int number : {0, 1}) {
    SCOPED_TRACE("rank " + std::to_string(number));
    const RankTrace& rank = ranks[number];
    EXPECT_EQ(rank.name, "rank " + std::to_string(number));
    for (const char* phase : {"data", "forward", "backward", "optimizer"})
      EXPECT_GE(rank.compute.at(phase).size(), 6U) << phase;
    EXPECT_EQ(rank.compute.at("evaluation").size(), 1U);
    EXPECT_FALSE(rank.waits.empty());
    EXPECT_EQ(rank.tracks.at(0), "compute");
    EXPECT_EQ(rank.tracks.at(1), "waiting");

    EXPECT_GT(rank.beside("forward", "all_gather"), 0);
    EXPECT_GT(rank.beside("backward", "all_gather"), 0);
    EXPECT_GT(rank.beside("backward", "reduce_scatter"), 0);

    std::set<std::string> units;
    std::map<int, double> track_ends;  // collectives of a communicator come one after the other
    for (const auto& event : rank.collectives) {
      const auto& args = event.at("args");
      units.insert(args.at("unit").text());
      EXPECT_EQ(rank.tracks.at(event.at("tid").get<int>()).substr(0, 20), "communication: world")
          << event.dump();
      const Interval whole = interval_of(event);
      EXPECT_GE(whole.begin + 0.01, track_ends[event.at("tid").get<int>()]) << event.dump();
      track_ends[event.at("tid").get<int>()] = whole.end;
      if (args.at("collective") == "reduce_scatter") {
        EXPECT_GT(args.at("sent_bytes").get<int64_t>(), 0) << event.dump();
      }
    }
    EXPECT_EQ(std::count_if(units.begin(), units.end(),
                            [](const auto& unit) { return unit.rfind("blocks.", 0) == 0; }),
              4);
  }
}

TEST_F(TraceFlag, FailedRunEndsAsItWouldWithout) {
  // Too little memory: every rank throws in the midst of training or before.
  EXPECT_EQ(run("--workers 2 --strategy ddp --memory-limit 1MB"), 1) << output();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/trace.json"));
  // Nowhere to write to: the run says so.
  EXPECT_EQ(run("--steps 2", "/none/trace.json"), 1);
  EXPECT_NE(output().find("none/trace.json"), std::string::npos) << output();
}

}  // namespace
}  // namespace weft
