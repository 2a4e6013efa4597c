// Checkpoints of a training run that is spread over ranks.
//
//   dist::Checkpointer checkpoints(model, parallel, {.directory = run + "/checkpoints"});
//   checkpoints.add(optimizer);
//   if (const auto resumed = checkpoints.resume()) {
//     step = resumed->progress.step;
//     loader.seek({resumed->progress.epoch, resumed->progress.consumed});
//   }
//   … checkpoints.save({.step = step, .epoch = …, .consumed = …});   // between steps
//   checkpoints.wait();
//
// A checkpoint is a directory step-00000042 with a safetensors file of each rank and manifest.json
// (dist/manifest.h). A rank writes what it owns; what several ranks hold is divided among them. All
// write into a directory under a temporary name, every file and directory is synced, and the last
// thing is the rename: others see a whole checkpoint or none. Loading intersects intervals, so a
// checkpoint of any strategy on any number of ranks is loaded under any other, and each rank reads
// its own ranges only. Every byte that is read is checked against its CRC32C.
//
// Saved: parameters and buffers of the model, state of the optimizer, position of a Scheduler,
// moving averages, the seed of this thread's random_state(), the tensors that are added, and a
// TrainingProgress. The
// manifest has a digest of all that (but for notes), which does not depend on strategy or ranks.
//
// Errors. An error of one rank becomes one error on all of them, by rank: which operation on which
// file of which rank got what. Ranks agree on it over a communicator of their own ("…/checkpoint"),
// beside those that train. A failed save leaves the checkpoints before it as they were and no other
// trace; that of a process that was killed leaves a directory under a temporary name, which the
// next Checkpointer removes.
//
// All ranks call the same in the same order, between steps; one thread owns a Checkpointer.
#pragma once

#include "core/function.h"
#include "dist/checkpoint_directory.h"
#include "dist/manifest.h"
#include "dist/parallel.h"
#include "dist/training_progress.h"
#include "optim/ema.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft::dist {

struct CheckpointOptions {
  std::string directory;  // made if it is not there
  Ref<CheckpointStorage> storage = local_storage();
  CheckpointKeep keep = {};

  // Asynchronous: save() copies what this rank saves and returns; a thread writes the copy, which
  // counts in the ledger as `other` until it is written. Else save() returns when the checkpoint is
  // whole, and copies nothing.
  bool asynchronous = true;
  // What becomes of a save that fails. `fail`: save() throws or, if it was asynchronous, the next
  // save() or wait() does. `go_on`: it is reported, and training goes on with the checkpoints that
  // there are.
  enum class OnFailure : uint8_t { fail, go_on };
  OnFailure on_failure = OnFailure::fail;
  // Takes a line about each failed save, and about what could not be removed, which fails nothing:
  // on rank 0, on the thread that calls save() or wait() or makes the Checkpointer; by default
  // standard error does.
  Function<void(const std::string& line)> report = {};

  // Bytes that share a CRC32C, a multiple of 8; what a rank reads is rounded out to them.
  int64_t block_bytes = int64_t{1} << 20;
};

// A checkpoint that this run has saved.
struct SavedCheckpoint {
  int64_t step = 0;
  std::string path;
  std::string digest;  // 16 hex digits
  int64_t bytes = 0;   // of all files
  double seconds = 0;  // from save() to the rename
  double stalled = 0;  // of them, those that save() took on this rank
};

struct LoadedCheckpoint {
  std::string path;
  std::string digest;
  TrainingProgress progress;
  // How it was saved.
  std::string strategy;
  int ranks = 0;
  uint64_t seed = 0;
  // What resume() found damaged before it, newest first: "PATH: what and where".
  std::vector<std::string> passed_over = {};
};

// A save that failed, on every rank. The text names each rank's operation, path and reason. (Where
// a rank is lost instead, it is the CommunicationError that tells which.)
class CheckpointError : public Error {
 public:
  using Error::Error;
};

class Checkpointer {
 public:
  // A collective. Removes what dead saves have left in the directory. The model, which must be that
  // of `parallel`, and all else that is given or added must outlive this. With mixed precision the
  // f32 masters are what is saved and loaded of parameters.
  Checkpointer(nn::Module& model, Parallel& parallel, CheckpointOptions options);
  // Waits for a save that is under way.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // What else is state. The optimizer must step parallel.parameters(), averages be of them; one at
  // most of each.
  void add(optim::Optimizer& optimizer);
  void add(optim::Scheduler& scheduler);
  void add(const optim::Ema& averages);
  // Tensors that are the same on all ranks, such as those of a loss scaler. Loaded in place.
  void add(std::vector<NamedTensor> tensors);

  // Saves the state as it is now; waits first for a save that is still under way. A checkpoint of
  // the same step is replaced at once. All ranks.
  void save(const TrainingProgress& progress);
  // Waits until what save() began is whole, or has failed. All ranks.
  void wait();
  // Whether a save is under way on this rank.
  bool busy() const;
  // The newest that this object has saved whole. May be asked by any thread.
  std::optional<SavedCheckpoint> saved() const;
  // Saves that failed.
  int64_t failures() const;

  // Loads one checkpoint, on all ranks. Throws DamagedCheckpoint, or another Error where it does
  // not fit model, optimizer or scheduler, or where storage fails to read, which says nothing about
  // the checkpoint; the same on every rank. Then all of them are as before on every rank.
  LoadedCheckpoint load(const std::string& path);
  // Loads the newest checkpoint of the directory that is whole. Nothing where the directory has
  // none at all; throws DamagedCheckpoint, listing all, where all are damaged. Damaged is what has
  // wrong bytes, wrong lengths or no file; a file that storage fails to read is an Error of load().
  std::optional<LoadedCheckpoint> resume();

  const CheckpointDirectory& directory() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::dist
