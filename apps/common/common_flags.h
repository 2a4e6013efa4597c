// The flags every training app shares.
#pragma once

#include "apps/common/command_line.h"
#include "core/dtype.h"
#include "dist/environment.h"

#include <optional>
#include <string>
#include <vector>

namespace weft::app {

struct CommonFlags {
  int64_t workers = 1;
  std::string strategy = "single";
  std::string device = "cpu";
  std::string dtype = "f32";
  std::string backend = "auto";
  double timeout = 120;  // seconds
  int64_t threads = 0;   // 0: all processors, divided among the ranks of this host
  int64_t seed = 1;
  int64_t epochs = 5;
  int64_t steps = 0;  // 0: as the epochs have it
  int64_t global_batch = 128;
  int64_t accumulate = 1;
  double lr = 0.1;
  std::string optimizer = "sgd";
  int64_t logical_shards = 0;
  std::string data;
  std::string run_dir;
  std::string resume = "none";
  int64_t checkpoint_every = 0;
  int64_t keep = 3;
  std::string on_save_error = "fail";
  bool overwrite = false;
  int64_t max_failures = 0;
  int64_t min_workers = 0;
  double heartbeat = 60;  // seconds
  double grace = 30;      // seconds
  std::string inject;
  int64_t memory_limit = 0;  // bytes, 0: none
  std::string init;
  std::string export_to;
  std::string trace;
  bool profile = false;
  bool quiet = false;
  // Not flags; filled by apply_common_flags(). Who this process is.
  dist::RankEnvironment environment = {};
  // What all ranks must have been started with alike, a line a flag.
  std::vector<std::string> agreed = {};
};

// Whether so many ranks can train: the global batch is cut into equal shards, at least one a rank.
bool shards_fit(const CommonFlags& flags, int64_t workers);

// Adds them to `line`, with the values `flags` holds as defaults.
void add_common_flags(CommandLine& line, CommonFlags& flags);

// After parsing: finds out which rank this is, refuses what cannot be honoured (returns the exit
// code), then applies threads, memory limit and seed to this process. `workers` becomes the number
// of ranks that a launcher has started, and `strategy`, where it is not given, "single" for one
// rank and "ddp" for more.
std::optional<int> apply_common_flags(const CommandLine& line, CommonFlags& flags);

}  // namespace weft::app
