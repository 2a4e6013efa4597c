// One program, one rank or many: starting the ranks, or joining them.
#pragma once

#include "apps/common/common_flags.h"
#include "dist/communicator.h"

#include <functional>

namespace weft::app {

// Runs body(comm) as a rank, or starts the ranks that do; returns the program's exit code.
//
//  - Launched by something (dist/environment.h): joins the others.
//  - Alone with --workers 1: is the only rank of its communicator.
//  - Alone with --workers N: starts N copies of itself with the same arguments (dist/launch.h),
//  whose
//    output is logged in RUN_DIR/logs/rank-N.log, and returns the code of the first that fails.
//
// `flags` have been through apply_common_flags(); ranks that were started with different ones all
// throw an Error that names the first difference. What body throws is passed on to the other ranks,
// whose collectives then fail with its text, and thrown again.
int run_ranks(int argc, char** argv, const CommonFlags& flags,
              const std::function<void(dist::Communicator& comm)>& body);

}  // namespace weft::app
