// What the gpt app can be told.
#pragma once

#include "apps/common/common_flags.h"
#include "apps/common/gpt_flags.h"
#include "apps/common/sample.h"

#include <optional>
#include <string>

namespace weft::app {

struct GptAppOptions {
  CommonFlags common;
  GptFlags gpt;
  std::string level = "bytes";
  double validation = 0.1;
  std::string schedule = "cosine";
  int64_t warmup = 20;
  double weight_decay = 0.1;
  double clip = 1;
  bool no_train = false;
  SampleOptions sample;
};

// Parses the command line; returns the exit code where the program should end.
std::optional<int> parse_options(int argc, char** argv, GptAppOptions& options);

}  // namespace weft::app
