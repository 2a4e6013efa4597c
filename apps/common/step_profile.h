// --profile: where the time of a run's training steps goes.
#pragma once

#include "nn/profile.h"

#include <functional>
#include <string>

namespace weft::app {

// Belongs to the thread that trains.
class StepProfile {
 public:
  // Measures the machine's speed on this thread's num_threads(): takes a second.
  StepProfile() : run_{.steps = 0, .seconds = 0, .speed = measure_machine_speed()} {}

  // Runs a step. The first one, in which memory and kernels are made ready, does not count.
  void step(const std::function<void()>& body);
  bool empty() const { return run_.steps == 0; }
  // nn::profile_table of the steps so far, at least one.
  std::string table(nn::Module& model) const;

 private:
  Profiler profiler_;
  nn::ProfileRun run_;
  bool warm_ = false;
};

}  // namespace weft::app
