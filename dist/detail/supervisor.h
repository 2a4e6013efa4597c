// The supervisor of a run: starts its ranks, looks after them, and starts them again after a
// failure or a change of places, until the run has ended.
#pragma once

#include "core/function.h"
#include "dist/detail/run_folder.h"
#include "dist/detail/step_watch.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft::dist::detail {

// How a rank knows what it is part of: the attempt, the board's descriptor, and where to go on.
inline constexpr const char* kAttemptVariable = "WEFT_ATTEMPT";
inline constexpr const char* kBoardVariable = "WEFT_RUN_BOARD";
inline constexpr const char* kResumeVariable = "WEFT_RESUME";

struct SupervisorOptions {
  std::vector<std::string> command;  // of a rank
  std::string name;                  // how its messages begin
  int workers = 1;
  int min_workers = 1;
  Function<bool(int workers)> fits = {};  // whether so many can train; empty: any number
  int max_failures = 0;
  bool saves = false;  // there are checkpoints, so that a change of places need not wait
  double heartbeat_seconds = 0;
  double grace_seconds = 30;  // from SIGTERM to SIGKILL
  std::string resume;         // until an attempt has begun there
  StepWatchOptions watch = {};
};

struct SupervisorReport {
  int code = 0;  // 0: finished; 128 + N: signal N has ended the run; else the failed rank's code
  int signal = 0;
  int64_t attempts = 0;  // all that the run has had, also under earlier supervisors
  int failures = 0;
};

// Runs until the run has ended. `folder` is this process's. Throws Error for what cannot be
// started.
SupervisorReport supervise(const RunFolder& folder, const SupervisorOptions& options);

// The largest number of ranks of at most `places` that fits; 0 if it is less than min_workers.
int ranks_for(const SupervisorOptions& options, int places);

}  // namespace weft::dist::detail
