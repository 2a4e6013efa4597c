// A training run of an app: the worker function of a dist::Trainer, the same on one rank or many.
// Epochs of steps over the logical shards of each batch, evaluation after every epoch, checkpoints,
// result and export.
#pragma once

#include "apps/common/common_flags.h"
#include "apps/common/run_directory.h"
#include "data/loader.h"
#include "dist/trainer.h"
#include "nn/module.h"
#include "optim/optim.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::app {

// What an app brings. Lives as long as the run.
class Task {
 public:
  virtual ~Task() = default;
  // Of f32. May be built within a Deferred scope.
  virtual nn::Module& model() = 0;
  virtual const data::Dataset& training() const = 0;
  virtual const data::Dataset& test() const = 0;
  // [targets, classes] for a batch's inputs.
  virtual Tensor logits(const Tensor& inputs) = 0;
  // Summed over targets, of which those that are kNoTarget count for nothing.
  virtual Tensor loss(const Tensor& logits, const Tensor& targets) = 0;
  virtual std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters) = 0;
  virtual optim::Schedule make_schedule(int64_t steps) const = 0;
  // The first line that is shown, after the app's name.
  virtual std::string headline() const = 0;
  // Gradients are clipped to this norm; 0: not at all.
  virtual double clip_norm() const { return 0; }
  // Of a moving average of the weights, which is then what is tested and exported; 0: none.
  virtual double ema_decay() const { return 0; }
  // Whether the share of targets among the five likeliest classes is told, too.
  virtual bool top5() const { return false; }
  // What becomes of an epoch's last samples when they do not fill a batch.
  virtual data::Tail tail() const { return data::Tail::mask; }
  // Threads that gather batches beside training.
  virtual int data_threads() const { return 1; }
  virtual int64_t evaluation_batch() const { return 500; }
  // Samples that this rank could not read so far and went on without; a count on every rank, or
  // nothing on every rank, where that cannot be. Counts of ranks are added up: a sample that two
  // have met is two.
  virtual std::optional<int64_t> unreadable() const { return std::nullopt; }
  // What an export says about itself.
  virtual std::vector<std::pair<std::string, std::string>> metadata() const { return {}; }
  // Modules that become units of fsdp; empty: by size.
  virtual std::vector<std::string> unit_types() const { return {}; }
  // Whether there is something to do with the whole model once training has ended. Where not, and
  // nothing is exported, ranks that hold a share of it never gather it all.
  virtual bool has_finish() const { return false; }
  // That, on rank 0.
  virtual void finish(RunDirectory& /*directory*/) {}
};

struct TrainingNames {
  std::string app;
  std::string rate = "images/s";
};

// Runs body(session) on every rank by a dist::Trainer that does what `flags` say, and returns the
// program's exit code. `flags` have been through apply_common_flags(); `train` are what the app has
// beyond them.
int run_trainer(const CommonFlags& flags, const std::string& app, dist::TrainConfig train,
                const std::function<void(dist::Session& session)>& body);

// Every rank calls it. Losses, the export and everything else that training computes are the same
// bits on any number of ranks and under any strategy, if flags.logical_shards is; and wherever it
// was interrupted and resumed.
void run_training(Task& task, const CommonFlags& flags, dist::Session& session,
                  const TrainingNames& names);

}  // namespace weft::app
