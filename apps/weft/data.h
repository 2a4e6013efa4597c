// `weft data`: packs folders of images, and looks at what was packed.
#pragma once

#include "apps/common/command_line.h"

#include <string>

namespace weft::app {

class DataCommand {
 public:
  explicit DataCommand(CommandLine& weft);
  bool chosen() const { return line_.chosen(); }
  // 0; 1 if check found damage; 2 for values that cannot be honoured.
  int run();

 private:
  int pack() const;
  int check() const;

  CommandLine& line_;
  CommandLine* pack_;
  CommandLine* check_;
  std::string folder_;
  std::string file_;
  int64_t size_ = 256;
  int64_t height_ = 0;
  int64_t width_ = 0;
  int64_t channels_ = 3;
  std::string crop_ = "centre";
  std::string bad_files_ = "fail";
  int64_t bad_limit_ = 1000;
  std::string empty_classes_ = "fail";
  std::string classes_;
  int64_t threads_ = 0;
  bool quiet_ = false;
};

}  // namespace weft::app
