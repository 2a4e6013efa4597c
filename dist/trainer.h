// Trainer: runs a worker function on one rank or many, and sees it through failures.
//
//   int main() {
//     dist::Trainer trainer(worker,                                   // void
//     worker(dist::Session&)
//                           {.values = {{"lr", 0.1}}},
//                           {.workers = 4, .min_workers = 2, .strategy = "fsdp"},
//                           {.name = "demo", .checkpoint = {.every = 100}, .failure =
//                           {.max_failures = 3}});
//     const dist::Result result = trainer.fit();
//     return result.exit_code;
//   }
//
// fit() starts this program again for every rank, with the same arguments; there main() comes to
// its fit(), which runs the worker function and ends the process. So what stands before fit() runs
// on every rank, and what stands behind it once. With one worker and no restarts the worker
// function runs right here. Under a launcher (weft run, torchrun, mpirun, srun) fit() joins its
// ranks and returns on each of them; restarts are then the launcher's.
//
// The supervisor, which is the process that called fit(), notices a rank that has ended at once,
// and one that stands still by its missing signs of life. It then ends the others and starts an
// attempt from the newest whole checkpoint. How many ranks may run, others may tell it while it
// runs: a number in the file RUN/places. If that changes, ranks save and end, and the next attempt
// has so many, of at most `workers` and at least `min_workers`; it is not a failure. With fewer
// places than min_workers the run ends, and can be resumed. SIGTERM makes the ranks save and end;
// the exit code is then 128 + SIGTERM. A killed supervisor takes the ranks with it.
//
// Every rank is watched (dist/session.h): who is persistently more than a fifth slower than the
// others is named, with the phase in which that happens; so is who waits for data, and who grows.
#pragma once

#include "core/function.h"
#include "dist/run_config.h"
#include "dist/session.h"

#include <string>

namespace weft::dist {

struct Result {
  // 0: the worker function has returned on all ranks. 128 + N: signal N has ended the run, after a
  // save if it was SIGTERM and there are checkpoints. Else the exit code of the rank that failed,
  // once more than max_failures; its last lines have been shown, and are in RUN/logs.
  int exit_code = 0;
  int64_t restarts = 0;  // attempts of the run but the first
  int failures = 0;      // of this fit()
  // Of the last report.
  int64_t step = 0;
  Metrics metrics;
  // Paths; empty where there is none.
  std::string checkpoint;       // the newest
  std::string best_checkpoint;  // by TrainingProgress::metric; empty too where one cannot be read
  std::string directory;        // of the run
};

using WorkerFunction = Function<void(Session& session)>;

class Trainer {
 public:
  // Throws Error for configurations that make no sense.
  Trainer(WorkerFunction worker, TrainConfig train, ScalingConfig scaling, RunConfig run);

  // Throws Error for a run that cannot begin: its directory is in use, it has finished. What the
  // worker function throws, it throws too where it has run it itself. To be called from a program's
  // only thread, once.
  Result fit();

  // Whether this process is a rank that a fit() has started.
  static bool started_this();

 private:
  WorkerFunction worker_;
  TrainConfig train_;
  ScalingConfig scaling_;
  RunConfig run_;
};

}  // namespace weft::dist
