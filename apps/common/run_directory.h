// What an app adds to a run's folder (dist/detail/run_folder.h): result.json, written last and
// whole, lines of rank 0's log, files of its own.
#pragma once

#include "apps/common/common_flags.h"
#include "dist/communicator.h"
#include "dist/parallel.h"
#include "dist/step_clock.h"

#include <cstdio>
#include <optional>
#include <string>

namespace weft::app {

struct RunResult {
  std::string app;
  int64_t steps = 0;
  int64_t epochs = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  std::optional<double> test_top5 = {};
  std::optional<int64_t> unreadable = {};  // samples that ranks went on without, counted by each
  // Of f16: what the loss is multiplied by in the end, and steps that have overflowed.
  std::optional<double> loss_scale = {};
  int64_t skipped_steps = 0;
  double images_per_second = 0;
  double wall_seconds = 0;
  int64_t restarts = 0;
  int64_t parameters = 0;  // elements of the whole model's
  // Bytes of model state that rest on this rank, by the formulas of dist::Parallel::state_bytes()
  // and the optimizer: what resident_bytes, which the ledger has counted, should be.
  dist::Parallel::StateBytes state;
  int64_t optimizer_bytes = 0;
};

class RunDirectory {
 public:
  // Makes the folder; an earlier run's result in it is removed. Throws an Error naming the path.
  // `prints` says that what is logged is also printed: a launcher that keeps this process's output
  // in the same logs/rank-0.log (dist/launch.h) then writes it there by itself.
  explicit RunDirectory(const std::string& path, bool prints = false);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // A line of logs/rank-0.log.
  void log(const std::string& text);
  // Writes a file of its own.
  void write(const std::string& name, const std::string& text) const;
  // Writes a file under a temporary name and renames it.
  void write_whole(const std::string& name, const std::string& text) const;

  const std::string& path() const { return path_; }

 private:
  std::FILE* open(const std::string& name, const char* mode = "we") const;
  void check_written(bool written, const std::string& name) const;

  std::string path_;
  bool logged_by_launcher_ = false;
  std::FILE* log_ = nullptr;
};

// A collective: the text of result.json on rank 0, empty on others, with what every rank has to
// say: bytes of its ledger, seconds of its phases, its communication up to now.
std::string result_text(const RunResult& result, const CommonFlags& flags,
                        const dist::StepClock& clock, dist::Communicator& comm);

}  // namespace weft::app
