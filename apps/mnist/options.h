// What the mnist app can be told.
#pragma once

#include "apps/common/common_flags.h"

#include <optional>
#include <string>

namespace weft::app {

struct MnistOptions {
  CommonFlags common;
  std::string preset = "none";
  std::string model = "cnn";
  std::string schedule = "cosine";
  double momentum = 0.9;
  double weight_decay = 0;
  double clip = 0;
  double label_smoothing = 0;
  bool flip = false;
  int64_t shift = 0;
};

// Parses the command line; returns the exit code where the program should end. A preset's values
// hold unless a flag says otherwise.
std::optional<int> parse_options(int argc, char** argv, MnistOptions& options);

}  // namespace weft::app
