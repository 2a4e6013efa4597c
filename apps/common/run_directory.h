// A run's folder: metrics.jsonl, a line a step; result.json, written last and whole; logs/.
#pragma once

#include "apps/common/common_flags.h"
#include "apps/common/step_clock.h"
#include "dist/communicator.h"
#include "dist/parallel.h"

#include <cstdio>
#include <string>

namespace weft::app {

struct StepMetrics {
  int64_t step = 0;  // from 1
  int64_t epoch = 0;
  float loss = 0;  // over the global batch
  double lr = 0;
  double images_per_second = 0;  // samples, whatever they are
  double seconds = 0;            // since the start of training
};

struct RunResult {
  std::string app;
  int64_t steps = 0;
  int64_t epochs = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double images_per_second = 0;
  double wall_seconds = 0;
  int64_t parameters = 0;  // elements of the whole model's
  // Bytes of model state that rest on this rank, by the formulas of dist::Parallel::state_bytes()
  // and the optimizer: what resident_bytes, which the ledger has counted, should be.
  dist::Parallel::StateBytes state;
  int64_t optimizer_bytes = 0;
};

class RunDirectory {
 public:
  // Makes the folder; an earlier run's result and metrics in it are removed. Throws an Error naming
  // the path. `prints` says that what is logged is also printed: a launcher that keeps this
  // process's output in the same logs/rank-0.log (dist/launch.h) then writes it there by itself.
  explicit RunDirectory(const std::string& path, bool prints = false);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  void metrics(const StepMetrics& metrics);
  // A line of logs/rank-0.log.
  void log(const std::string& text);
  // Writes a file of its own.
  void write(const std::string& name, const std::string& text) const;
  // Makes sure that the metrics so far are in the file.
  void flush_metrics();
  // Writes a file under a temporary name and renames it.
  void write_whole(const std::string& name, const std::string& text) const;

  const std::string& path() const { return path_; }

 private:
  std::FILE* open(const std::string& name, const char* mode = "we") const;
  void check_written(bool written, const std::string& name) const;

  std::string path_;
  bool logged_by_launcher_ = false;
  std::FILE* metrics_ = nullptr;
  std::FILE* log_ = nullptr;
};

// A collective: rank 0 writes result.json into its `directory` (null on others), with what every
// rank has to say: bytes of its ledger, seconds of its phases, its communication.
void write_result(RunDirectory* directory, const RunResult& result, const CommonFlags& flags,
                  const StepClock& clock, dist::Communicator& comm);

}  // namespace weft::app
