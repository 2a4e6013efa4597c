// Parallel: a model spread over the ranks of a communicator.
//
//   auto model = nn::models::resnet50(1000);
//   dist::Parallel parallel(model, comm, {.strategy = "fsdp"});      // the only new line
//   optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
//   for (…) { backward(loss(model(batch))); optimizer.step(); }
//
// One engine runs every strategy: a strategy is a row of dist/plan.h, `single` the same code on one
// rank. Gradients land in flat buffers as backward makes them, their sums over ranks begin while
// backward goes on, and the optimizer's step waits for them and spreads what it wrote.
//
// In the loop above each rank's backward is its one logical shard of the step, and the gradient the
// mean over ranks. A step of several micro-batches, or one whose bits do not depend on the number
// of ranks, names them:
//
//   parallel.begin_step(n);
//   for (const dist::Shard& shard : parallel.shards()) {
//     parallel.begin_shard(shard);
//     parallel.backward(loss of the shard's rows, divided by the global number of samples);
//   }
//   optim::clip_grad_norm(parallel.parameters(), 1.0);
//   optimizer.step();
//   float loss = parallel.loss();
//
// All ranks do the same in the same order. One thread owns a Parallel. An error that all ranks meet
// alike before the optimizer's step leaves the parameters as they were; begin_step() starts anew,
// with the buffers, too, as they were. Where ranks differ, or one fails alone, the others get the
// communicator's verdict.
#pragma once

#include "core/function.h"
#include "dist/communicator.h"
#include "dist/plan.h"
#include "dist/shards.h"
#include "dist/wrap.h"
#include "optim/parameters.h"

#include <optional>

namespace weft::dist {

struct ParallelOptions {
  std::string strategy = "ddp";

  // Logical shards of a step, 0 for ranks * accumulate; at least as many as there are ranks. With a
  // number that is kept, every number of ranks gives the same bits.
  int64_t logical_shards = 0;
  // Micro-batches a rank and step.
  int64_t accumulate = 1;
  // Whether strategies that keep gradients sharded reduce them after every micro-batch. Without, a
  // rank keeps full gradients until the step's last one: less traffic, more memory.
  bool reduce_every_shard = true;
  // The gradient is the mean over logical shards, or their sum: for losses that are divided by the
  // global number of samples already.
  bool mean_over_shards = true;

  // Gradients of ddp, zero1, zero2 travel in buckets of at least so many bytes.
  int64_t bucket_bytes = int64_t{4} << 20;

  // Ranks that a model is split over; the split repeats over groups of so many (hybrid sharding).
  // 0: all ranks. It must divide their number.
  int shard_ranks = 0;

  // Mixed precision: the 16-bit dtype (bf16 or f16) that the model's f32 and 16-bit parameters have
  // from now on; who calls the model gives it inputs of that dtype. Gathers and gradients are of
  // it, too. Beside it every rank keeps the f32 values (masters) of its part, at rest like
  // optimizer state: parameters() lists those, optimizers step them, and their rounding is what the
  // model computes with.
  std::optional<DType> parameter_dtype = {};
  // The dtype that sums of gradients end in, with parameter_dtype: that or f32. Whichever it is,
  // sums are added in f32, and the optimizer gets f32 gradients.
  std::optional<DType> reduce_dtype = {};
  // A floating dtype for the model's floating buffers, such as the statistics of BatchNorm.
  std::optional<DType> buffer_dtype = {};

  // Offload: the device on which shards (of parameters, masters, gradients and optimizer state)
  // rest between their uses, for strategies that keep parameters sharded. Memory of the processor
  // beside a model on a GPU is what it is for; for a model on the processor it is the same memory,
  // and nothing changes. Without, they rest where the model is.
  std::optional<Device> offload = {};

  // fsdp: what becomes a unit (by default modules of 100,000 elements and more). zero3 makes every
  // module that has parameters one.
  WrapPolicy wrap = {};
  // Units with full values at a time: the one at work and those gathered ahead.
  int64_t max_gathered = 2;
  bool prefetch = true;
  // Whether a unit's full values go between its forward and its backward. Without, one gather less
  // a step, and full parameters between the two.
  bool reshard_after_forward = true;
};

class Parallel {
 public:
  // A collective: checks that all ranks have the same model, takes its parameters and buffers into
  // flat buffers, with the values of rank 0. The model's tensors stay the tensors they were. Model
  // and communicator must outlive this.
  Parallel(nn::Module& model, Communicator& comm, ParallelOptions options = {});
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // What this rank's optimizer steps: the parameters themselves, or flat parts of them. Valid as
  // long as this Parallel.
  optim::Parameters parameters() const;

  const Plan& plan() const;
  const ParallelOptions& options() const;
  Communicator& communicator() const;
  // Logical shards of a step over all ranks.
  int64_t leaves() const;

  // ---- a step by logical shards ----

  // Drops the gradients of the last step. `step` keys random draws.
  void begin_step(uint64_t step);
  // This rank's shards of every step, in order.
  const std::vector<Shard>& shards() const;
  // From here on the model works for this shard: random draws are keyed by (step, shard), buffers
  // start from the step's first values. `has_samples`: false for a shard of padding alone, whose
  // buffers do not count.
  void begin_shard(const Shard& shard, bool has_samples = true);
  // Backward from the shard's loss times `scale` (optim/loss_scaler.h), and the end of the shard.
  void backward(const Tensor& loss, double scale = 1);
  // The sum of all shards' losses of this step (their mean with mean_over_shards), the same bits on
  // every rank.
  double loss();

  // Ends the sums of gradients. optimizer.step(), clip_grad_norm() and loss() do it, too.
  void finish_gradients();
  // In place of the optimizer's step: the step comes to nothing. Gradients go; buffers are as they
  // were before a step that begin_step() began. All ranks.
  void skip_step();

  // ---- the whole model ----

  // Runs f while every rank has the full parameters in the model: to save it, to look at it, to run
  // it on one rank alone, without backward. With mixed precision they are the f32 values. With
  // `keep`, changes that f makes are kept; all ranks must make the same. A collective.
  void with_full_parameters(const Function<void()>& f, bool keep = false);

  // Bytes of model state that rest on this rank by the formula: parameters, gradients, f32 masters
  // of mixed precision; padding is what they hold beyond the elements of parameters.
  struct StateBytes {
    int64_t parameters = 0;
    int64_t gradients = 0;
    int64_t masters = 0;
    int64_t padding = 0;
  };
  StateBytes state_bytes() const;

  // ---- what lies where, for checkpoints ----

  // A run of a parameter's elements that this rank holds between steps: all of it where P rests
  // replicated, else its share; parameters it holds nothing of are left out. Elements count in
  // memory order.
  struct Held {
    std::string name;
    Shape shape;      // of the whole parameter
    Strides strides;  // of the whole parameter
    int64_t begin = 0;
    Tensor values;  // one dim, this rank's own memory; writing to it changes the parameter
    // Which of the ranks that hold the same run this is, and how many there are.
    int holder = 0;
    int holders = 1;
  };
  // Between steps. Valid as long as this Parallel. With mixed precision they are the masters.
  std::vector<Held> held() const;
  // To be called when values of held() have been written: the model computes with them from then
  // on. A collective.
  void held_changed();
  // The same for what the optimizer keeps of parameters(): which of the ranks that step the same
  // parts this is, and how many there are.
  int replica() const;
  int replicas() const;

  class Engine;

 private:
  Ref<Engine> engine_;
};

}  // namespace weft::dist
