// What a worker function of a Trainer (dist/trainer.h) has to do with its run: its ranks, where to
// go on, the course of a step, reports and checkpoints.
//
//   void worker(dist::Session& session) {
//     … model, parallel, optimizer …
//     dist::Checkpointer checkpoints(model, parallel, session.checkpoint_options());
//     checkpoints.add(optimizer);
//     int64_t step = 0;
//     if (const auto resumed = session.resume(checkpoints)) step = resumed->progress.step;
//     for (bool stop = false; step < steps && !stop;) {
//       session.begin_step(step + 1);             // data
//       session.begin(dist::Phase::forward);      …
//       session.begin(dist::Phase::backward);     …
//       session.begin(dist::Phase::optimizer);    …
//       ++step;
//       const auto next = session.end_step({.step = step, .loss = loss});
//       if (next.save) session.report({{"loss", loss}}, checkpoints, {.step = step});
//       stop = next.stop;
//     }
//     checkpoints.wait();
//   }
//
// All ranks run the same function, one or many. One thread owns a Session.
#pragma once

#include "core/function.h"
#include "dist/checkpoint.h"
#include "dist/communicator.h"
#include "dist/run_config.h"
#include "dist/step_clock.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::dist {

// What is reported; names must not repeat.
using Metrics = std::vector<std::pair<std::string, double>>;

// A line of metrics.jsonl.
struct StepRecord {
  int64_t step = 0;   // from 1
  int64_t epoch = 0;  // from 0
  float loss = 0;     // over the global batch
  double lr = 0;
  double samples_per_second = 0;
  double seconds = 0;  // of training
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Of all ranks of this attempt.
  Communicator& comm() const;
  int rank() const;
  int size() const;
  // From 1, counted over the whole run.
  int64_t attempt() const;
  int64_t restarts() const { return attempt() - 1; }
  const TrainConfig& train_config() const;
  const ScalingConfig& scaling() const;
  const RunConfig& run() const;
  // Of the run, on all ranks. Rank 0 may write to it.
  const std::string& directory() const;

  // The rows of every global batch that this rank trains on, as (first, count), rising: those of
  // the logical shards that `parallel` gives to it.
  std::vector<std::pair<int64_t, int64_t>> dataset_shard(const Parallel& parallel,
                                                         int64_t global_batch) const;

  // ---- where to go on ----

  // For a Checkpointer of this run: its directory, what is kept, what becomes of failed saves; and
  // a storage in which injected faults strike and that counts as a sign of life.
  CheckpointOptions checkpoint_options() const;
  // Loads the checkpoint that this attempt begins from; nothing if it begins from the beginning. A
  // collective. The files of earlier attempts are cut back to its step. Checkpoints of later steps
  // are removed where the run was told to go back behind them (RunConfig::resume names one); those
  // that were passed over as damaged are kept, as step-N.damaged.
  std::optional<LoadedCheckpoint> resume(Checkpointer& checkpoints);

  // ---- a step ----

  // Begins step `step` (from 1) with its phase `data`.
  void begin_step(int64_t step);
  // What came before ends; from here on time is charged to this phase.
  void begin(Phase phase);
  // This rank is alive and in something that is no phase of a step: "evaluation". A long one says
  // so now and then, since a rank that says nothing for long counts as failed (RunConfig).
  void at(const char* what);
  // Runs `job`, such as an export by rank 0 alone: for as long as it takes, which is no sign of
  // failure on this rank or on those that are through and wait for it. It must not communicate by
  // comm(). Where one rank's throws, all throw an Error with its text. A collective.
  void in_own_time(const char* what, const Function<void()>& job);
  struct Next {
    bool save = false;  // a checkpoint is due
    bool stop = false;  // the worker function is to save and return: preempted, or places changed
  };
  // The step is complete. Rank 0 writes its line. The same on all ranks, whose steps must exchange
  // something with each other. Throws Error if the first step after a resume has not the loss, to
  // the bit, that it had before, where nothing has changed that explains it (detail/first_loss.h).
  // That is no failure to begin again after: each attempt would throw the same.
  Next end_step(const StepRecord& record);
  // Whether end_step() has said `stop`.
  bool stopped() const;

  // Seconds by phase in this attempt, and those of the run before it (from metrics.jsonl).
  const StepClock& clock() const;
  double seconds_before() const;
  // Called with what this rank did from when to when, by clock_seconds(): for a trace.
  void set_span_listener(Function<void(const char* what, double begin, double end)> listener);

  // ---- reports ----

  // All ranks report the same names at the same step; the values are rank 0's. A rank that does not
  // come, or comes with another report, makes it a CommunicationError on all within the timeout
  // that names both. Appended to reports.jsonl.
  void report(const Metrics& metrics);
  // The same with a checkpoint, which it saves.
  void report(const Metrics& metrics, Checkpointer& checkpoints, const TrainingProgress& progress);

  struct Setup;
  struct State;
  explicit Session(Setup setup);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace weft::dist
