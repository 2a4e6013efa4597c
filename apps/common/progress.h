// What a training run shows while it runs: a bar that redraws itself on a terminal, plain lines
// elsewhere. A rank whose launcher shows its output on a terminal counts as being there
// (dist/launch.h).
#pragma once

#include <cstdint>
#include <string>

namespace weft::app {

class Progress {
 public:
  // Shows nothing when quiet. `unit` is that of the rate.
  Progress(int64_t epochs, int64_t steps_per_epoch, bool quiet, std::string unit = "images/s");

  // After a step of `epoch` (0-based); `step` counts within the epoch, from 1. Redraws a few times
  // a second.
  void step(int64_t epoch, int64_t step, double loss, double rate);
  // A line that stays.
  void line(const std::string& text);

 private:
  void clear();

  int64_t epochs_;
  int64_t steps_per_epoch_;
  bool quiet_;
  std::string unit_;
  bool terminal_;
  bool drawn_ = false;
  double last_drawn_ = 0;
};

}  // namespace weft::app
