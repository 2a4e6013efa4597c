// How a run begins: what is to become of what its folder holds; and how it ends: its result.
#pragma once

#include "dist/detail/run_folder.h"
#include "dist/launch.h"
#include "dist/trainer.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

struct RunStart {
  std::string resume = "none";  // none, auto or a path
  int64_t attempt = 1;
};

// Holds what is asked for against what the folder has, and makes room for a run that begins anew.
// Throws Error where earlier work would be lost.
RunStart begin_run(const RunFolder& folder, const RunConfig& run);

// Rank 0's start on all ranks. A collective.
void share(RunStart& start, Communicator& comm);

void note_attempt(const RunFolder& folder, int64_t attempt, int ranks, const std::string& ending,
                  const LaunchReport& report);

Result result_of(const RunConfig& run, int exit_code, int64_t attempts, int failures);

// This program with its arguments.
std::vector<std::string> own_command();

}  // namespace weft::dist::detail
