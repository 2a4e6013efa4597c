// `weft checkpoint`: looks at checkpoints, checks and converts them, without the model's code.
#pragma once

#include "apps/common/command_line.h"

#include <string>
#include <vector>

namespace weft::app {

class CheckpointCommand {
 public:
  explicit CheckpointCommand(CommandLine& weft);
  bool chosen() const { return line_.chosen(); }
  // 0; 1 if verify found damage or diff a difference.
  int run();

 private:
  CommandLine& line_;
  CommandLine* list_;
  CommandLine* show_;
  CommandLine* verify_;
  CommandLine* export_;
  CommandLine* import_;
  CommandLine* diff_;
  std::string path_;
  std::string second_;
  std::string map_;
  int64_t step_ = 0;
  bool everything_ = false;
};

// Each is one command; what goes wrong throws.
int list_checkpoints(const std::string& directory);
int show_checkpoint(const std::string& path);
int verify_checkpoints(const std::string& path);
int export_checkpoint(const std::string& path, const std::string& file, bool everything);
int import_checkpoint(const std::string& file, const std::string& directory, const std::string& map,
                      int64_t step);
int diff_checkpoints(const std::string& a, const std::string& b);

}  // namespace weft::app
