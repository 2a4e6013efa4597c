// A profile of a model's steps as text.
//
//   Profiler profiler;
//   { const ProfilerScope scope(profiler); … steps … }
//   std::fputs(nn::profile_table(profiler, model, {.steps = 10, .seconds = 2.5}).c_str(), stdout);
//
// First a line an operator, forward and backward apart, the most expensive first; then a line a
// layer, in the model's order. A line has milliseconds a step, its share of the step, the rates at
// which it computed (GFLOP/s) and moved memory (GB/s), and the share of its bound: the time that
// the machine's best speeds would need for its arithmetic or its traffic, whichever is more, over
// the time that it took. FLOPs and bytes are those of the operator's definition, so an algorithm
// that needs fewer (Winograd's) can pass 100 %, as can one that finds its operands in cache.
#pragma once

#include "core/profiler.h"
#include "nn/module.h"
#include "ops/machine_speed.h"

#include <string>

namespace weft::nn {

struct ProfileRun {
  int64_t steps = 1;        // that the profiler saw
  double seconds = 0;       // which they took together
  MachineSpeed speed = {};  // measure_machine_speed(), on the threads that the steps had
};

std::string profile_table(const Profiler& profiler, Module& model, const ProfileRun& run);

}  // namespace weft::nn
