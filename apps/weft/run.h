// `weft run -n N -- program argument…`: starts the ranks of any program.
#pragma once

#include "apps/common/command_line.h"

#include <string>
#include <vector>

namespace weft::app {

class RunCommand {
 public:
  explicit RunCommand(CommandLine& weft);
  bool chosen() const { return line_.chosen(); }
  // Returns the exit code of the launch (dist/launch.h), or of a value that cannot be honoured.
  int run();

 private:
  CommandLine& line_;
  int64_t ranks_ = 0;
  std::string hosts_;
  std::string ssh_;
  std::string master_address_;
  int64_t master_port_ = 0;
  std::string log_directory_;
  bool all_output_ = false;
  double time_limit_ = 0;
  std::vector<std::string> command_;
};

}  // namespace weft::app
