// The three configurations of a Trainer: what is trained, on what, and how the run is kept.
#pragma once

#include "core/function.h"
#include "dist/checkpoint.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft::dist {

// The app's hyper-parameters, by name. They are kept in the run's folder (run.json), beside
// threads, processor and build; a run that is resumed with others says so, and its losses are then
// not held against those before.
struct TrainConfig {
  std::vector<NamedValue> values = {};

  // Throw Error where there is no such value or it is of another kind; number() takes both kinds.
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;
};

// On what. Ranks that a Trainer starts are processes of this host.
struct ScalingConfig {
  int workers = 1;
  // After a failure or a change of places: go on with no fewer than these. 0: all workers.
  int min_workers = 0;
  // Whether so many workers can train, where not any number can: the global batch may have to be a
  // multiple of theirs.
  Function<bool(int workers)> fits = {};
  std::string device = "cpu";
  std::string strategy = "ddp";
  int threads = 0;  // of a rank; 0: processors divided among `workers`
  // With a number other than 0 every number of ranks gives the same bits.
  int64_t logical_shards = 0;
  std::string backend = "auto";  // dist/world.h
  double timeout_seconds = 120;  // for a rank that is alive but does not come to a collective
};

struct RunConfig {
  std::string name = "run";  // how messages begin
  std::string storage = "runs";
  std::string directory = {};  // of the run; empty: storage/name

  // "none": from the beginning. "auto": from the newest whole checkpoint of this run, else from the
  // beginning. A path: from that checkpoint; if it is one of this run's, newer ones are dropped.
  std::string resume = "auto";
  // Without this a run that has checkpoints which `resume` does not take up is not begun anew, nor,
  // by "auto", one that has finished. A run without checkpoints is: it has nothing that the new one
  // could not make again, and who asks for no checkpoints tries things, often in one folder.
  bool overwrite = false;
  // How users call the two in this program, for messages.
  std::string overwrite_flag = "RunConfig::overwrite";
  std::string resume_flag = "RunConfig::resume";

  struct CheckpointPolicy {
    int64_t every = 0;  // steps; 0: no checkpoints
    CheckpointKeep keep = {};
    bool asynchronous = true;
    CheckpointOptions::OnFailure on_failure = CheckpointOptions::OnFailure::fail;
  };
  CheckpointPolicy checkpoint = {};

  struct FailurePolicy {
    int max_failures = 0;  // restarts after failures, over the whole fit()
    // A rank that shows no sign of life for so long (and ten times as long as ever before) once it
    // has done a step counts as failed. 0: never.
    double heartbeat_seconds = 60;
    // From SIGTERM on, for the last save.
    double grace_seconds = 30;
  };
  FailurePolicy failure = {};

  // Faults on purpose (dist/faults.h).
  std::string inject = {};
};

}  // namespace weft::dist
