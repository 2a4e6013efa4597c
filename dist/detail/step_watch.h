// Looks at how far ranks are and where their time goes, and says what is worth saying: which rank
// keeps the others waiting, who waits for data, whose memory grows.
#pragma once

#include "dist/detail/run_board.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::dist::detail {

struct StepWatchOptions {
  int64_t window_steps = 10;    // steps that are looked at together, by every rank
  int windows = 3;              // so many windows in a row make it persistent
  double behind = 0.2;          // share by which a rank's own time is above the others'
  double least_seconds = 2e-4;  // a step; less is noise
  double starved = 0.2;         // share of a step that is spent on data
  int growth_windows = 10;      // that memory is looked at over
  int settling_windows = 3;     // of the beginning, in which memory may grow
  int64_t growth_bytes = int64_t{32} << 20;
  double growth_share = 0.05;
};

// Owned by one thread. Bytes and seconds are all it looks at, so tests can say what they like.
class StepWatch {
 public:
  explicit StepWatch(int ranks, StepWatchOptions options = {});

  // Samples of all ranks at one time, in rank order, not going backwards. Each finding is told
  // once, and again only after it has been over for a while.
  std::vector<std::string> add(std::span<const RankSample> samples);

 private:
  struct Finding {
    int windows = 0;  // in a row
    bool told = false;
  };
  struct Point {
    double step;
    double bytes;
  };

  bool lasts(Finding& finding, bool now) const;
  void look_for_slowest(std::span<const RankSample> samples, std::vector<std::string>& lines);
  void look_for_starvation(std::span<const RankSample> samples, std::vector<std::string>& lines);
  void look_for_growth(std::span<const RankSample> samples, std::vector<std::string>& lines);

  StepWatchOptions options_;
  std::vector<RankSample> begin_;  // of the window
  std::vector<Finding> behind_;
  std::vector<Finding> starved_;
  std::vector<std::vector<Point>> memory_;  // of each rank, a point a window
  std::vector<double> told_bytes_;          // grown to, when it was told
  int64_t windows_ = 0;
};

}  // namespace weft::dist::detail
