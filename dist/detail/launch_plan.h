// What has to be run for each rank of a launch.
#pragma once

#include "dist/launch.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

struct RankPlan {
  bool remote = false;                   // `command` is ssh: the rank ends when its input does
  std::vector<std::string> command;      // command[0] is a path
  std::vector<std::string> environment;  // NAME=value, all of it
};

// `logs` is an absolute path. Throws Error for options that cannot be honoured and for programs
// that are not there.
std::vector<RankPlan> plan_launch(const LaunchOptions& options, const std::string& logs);

// The path of rank N's log.
std::string log_path(const std::string& logs, int rank);

// One argument of a POSIX shell, whatever is in it.
std::string shell_quoted(const std::string& text);

}  // namespace weft::dist::detail
