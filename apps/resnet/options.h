// What the resnet app can be told, and the recipes that its presets are.
#pragma once

#include "apps/common/common_flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::app {

struct ResNetAppOptions {
  CommonFlags common;
  std::string preset = "none";
  std::string arch = "resnet18";
  int64_t image_size = 0;  // 0: that of the data; of photographs, what the network is for
  bool synthetic = false;
  int64_t synthetic_samples = 1280;
  int64_t synthetic_classes = 1000;

  std::string schedule = "cosine";
  double warmup_epochs = 0;
  std::string milestones = "30,60,80";  // epochs, of the schedule "step"
  double momentum = 0.9;
  double weight_decay = 1e-4;
  bool no_vector_decay = false;
  double label_smoothing = 0;
  double ema = 0;
  double clip = 0;
  bool zero_init = false;

  bool flip = false;
  int64_t shift = 0;
  double erase = 0;
  double mixup = 0;
  double cutmix = 0;
  std::string bad_files = "fail";
  int64_t bad_limit = 1000;
  int64_t data_threads = 1;
  std::string tail = "drop";

  // Not a flag; filled by parse_options(): milestones as numbers.
  std::vector<double> milestone_epochs = {};
};

// Parses the command line; returns the exit code where the program should end. A preset's values
// hold unless a flag says otherwise.
std::optional<int> parse_options(int argc, char** argv, ResNetAppOptions& options);

}  // namespace weft::app
