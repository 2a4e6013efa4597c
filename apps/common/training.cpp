#include "apps/common/training.h"

#include "apps/common/progress.h"
#include "apps/common/step_clock.h"
#include "data/loader.h"
#include "dist/parallel.h"
#include "dist/trace.h"
#include "weft.h"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace weft::app {
namespace {

dist::ParallelOptions parallel_options(const Task& task, const CommonFlags& flags) {
  dist::ParallelOptions options;
  options.strategy = flags.strategy;
  options.logical_shards = flags.logical_shards;
  options.accumulate = flags.accumulate;
  options.mean_over_shards = false;  // losses are divided by the global number of targets
  if (flags.dtype != "f32") options.parameter_dtype = dtype_from_name(flags.dtype);
  if (flags.strategy == "fsdp") options.wrap.types = task.unit_types();
  return options;
}

// The rows of a batch that this rank trains on: those of its own shards, each once.
std::vector<data::RowRange> rows_of(const dist::Parallel& parallel, int64_t batch) {
  std::vector<data::RowRange> rows;
  for (const dist::Shard& shard : parallel.shards()) {
    if (!shard.ghost) rows.push_back({shard.first_row(batch), shard.rows(batch)});
  }
  return rows;
}

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

class Training {
 public:
  Training(Task& task, const CommonFlags& flags, dist::Communicator& comm,
           const TrainingNames& names)
      : task_(task),
        flags_(flags),
        comm_(comm),
        names_(names),
        model_(prepared(task, flags)),
        parallel_(model_, comm, parallel_options(task, flags)),
        loader_(task.training(), {.batch = flags.global_batch,
                                  .seed = static_cast<uint64_t>(flags.seed),
                                  .rows = rows_of(parallel_, flags.global_batch)}),
        optimizer_(task.make_optimizer(parallel_.parameters())) {
    if (!flags.trace.empty()) trace_.emplace(comm);
    const int64_t by_epochs = flags.epochs * loader_.batches();
    total_steps_ = flags.steps > 0 ? std::min(flags.steps, by_epochs) : by_epochs;
    schedule_ = task.make_schedule(total_steps_);
  }

  void run() {
    const bool first = comm_.rank() == 0;
    std::optional<RunDirectory> directory;
    if (first) directory.emplace(flags_.run_dir, !flags_.quiet);
    Progress progress(flags_.epochs, loader_.batches(), flags_.quiet || !first, names_.rate);
    start_ = seconds_now();
    progress.line(headline());
    Evaluation evaluation;
    double epoch_loss = 0;
    for (int64_t epoch = 0; step_ < total_steps_; ++epoch) {
      epoch_loss = train_epoch(epoch, directory ? &*directory : nullptr, progress);
      const double before_evaluation = seconds_now();
      evaluation = evaluate();
      if (trace_) trace_->span("evaluation", before_evaluation, seconds_now());
      char text[160];
      std::snprintf(text, sizeof text,
                    "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f, %.1f %s",
                    static_cast<long long>(epoch + 1), epoch_loss, evaluation.loss,
                    evaluation.accuracy, rate(), names_.rate.c_str());
      progress.line(text);
      if (directory) directory->log(text);
    }
    if (!flags_.export_to.empty() || task_.has_finish()) {
      parallel_.with_full_parameters([&] {
        if (first && !flags_.export_to.empty()) model_.save(flags_.export_to, task_.metadata());
        if (task_.has_finish()) task_.finish(directory ? &*directory : nullptr);
      });
    }
    const RunResult result{.app = names_.app,
                           .steps = step_,
                           .epochs = flags_.epochs,
                           .train_loss = epoch_loss,
                           .test_loss = evaluation.loss,
                           .test_accuracy = evaluation.accuracy,
                           .images_per_second = rate(),
                           .wall_seconds = seconds_now() - start_,
                           .parameters = parameter_elements(),
                           .state = parallel_.state_bytes(),
                           .optimizer_bytes = optimizer_->state_bytes()};
    if (trace_) trace_->write(flags_.trace);
    write_result(directory ? &*directory : nullptr, result, flags_, clock_, comm_);
    progress.line("result: " + flags_.run_dir + "/result.json");
  }

 private:
  // The model as training begins: with the weights that --init names, or on the way to them.
  static nn::Module& prepared(Task& task, const CommonFlags& flags) {
    nn::Module& model = task.model();
    if (!flags.init.empty()) model.load(flags.init);
    return model;
  }

  int64_t parameter_elements() const {
    int64_t elements = 0;
    for (const auto& [name, tensor] : model_.named_parameters())
      elements += tensor.numel();
    return elements;
  }

  std::string headline() const {
    std::string text =
        concat({names_.app, ": ", task_.headline(), ", ", parameter_elements(), " parameters, ",
                flags_.dtype, ", batch ", flags_.global_batch, ", ", total_steps_, " steps, "});
    if (comm_.size() > 1) {
      text += concat({flags_.strategy, " on ", comm_.size(), " ranks (", comm_.backend(), ") of "});
    }
    return text + concat({flags_.threads, " threads"});
  }

  // Charges the time since the last mark to a phase, also in the trace.
  void mark(Phase phase) {
    const double began = clock_.last_mark();
    clock_.mark(phase);
    if (trace_) trace_->span(kPhaseNames[static_cast<size_t>(phase)], began, clock_.last_mark());
  }

  double rate() const {
    return training_seconds_ > 0 ? static_cast<double>(trained_) / training_seconds_ : 0;
  }

  // Returns the mean loss over the epoch's steps.
  double train_epoch(int64_t epoch, RunDirectory* directory, Progress& progress) {
    model_.train();
    double sum = 0;
    int64_t step_in_epoch = 0;
    const double before = training_seconds_;
    const double began = seconds_now();
    clock_.skip();
    while (step_ < total_steps_) {
      const auto batch = loader_.next();
      mark(Phase::data);
      if (!batch) break;
      const double lr = schedule_(step_);
      optimizer_->set_lr(lr);
      const float loss = train_step(*batch);
      ++step_;
      ++step_in_epoch;
      sum += static_cast<double>(loss);
      trained_ += batch->whole_count;
      const double now = seconds_now();
      training_seconds_ = before + now - began;
      if (directory) directory->metrics({step_, epoch, loss, lr, rate(), now - start_});
      progress.step(epoch, step_in_epoch, static_cast<double>(loss), rate());
    }
    return sum / static_cast<double>(std::max<int64_t>(step_in_epoch, 1));
  }

  // One step over a global batch. The loss is the mean over the targets of the whole of it.
  float train_step(const data::Batch& batch) {
    const double waited = comm_.recorder().waited_seconds();
    parallel_.begin_step(static_cast<uint64_t>(step_));
    int64_t at = 0;  // row of `batch`, which holds the rows of this rank's shards one by one
    for (const dist::Shard& shard : parallel_.shards()) {
      const int64_t rows = shard.rows(flags_.global_batch);
      const int64_t row = shard.ghost ? 0 : std::exchange(at, at + rows);
      parallel_.begin_shard(shard, row < batch.count);
      const Tensor loss = task_.loss(task_.logits(narrow(batch.inputs, 0, row, rows)),
                                     narrow(batch.targets, 0, row, rows)) *
                          (1.0 / static_cast<double>(batch.whole_targets));
      mark(Phase::forward);
      parallel_.backward(loss);
      mark(Phase::backward);
    }
    parallel_.finish_gradients();
    if (task_.clip_norm() > 0)
      optim::clip_grad_norm(parallel_.parameters(), task_.clip_norm(),
                            {.error_if_nonfinite = true});
    optimizer_->step();
    mark(Phase::optimizer);
    clock_.move_to_communication(comm_.recorder().waited_seconds() - waited);
    return static_cast<float>(parallel_.loss());
  }

  // Ranks take batches of the test set in turn. Every batch is summed by itself, and batches in
  // their order, so that the result does not depend on who took which.
  Evaluation evaluate() {
    const NoGrad no_grad;
    model_.eval();
    const data::Dataset& test = task_.test();
    const int64_t size = task_.evaluation_batch();
    const int64_t batches = (test.size() + size - 1) / size;
    std::vector<double> sums(static_cast<size_t>(3 * batches));  // loss, hits, targets of each
    for (int64_t first = 0; first < batches; first += comm_.size()) {
      const int64_t batch = first + comm_.rank();
      // With nothing left of its own, a rank goes along: its forward may gather parameters.
      evaluate_batch(test, batch < batches ? batch : 0, size,
                     batch < batches ? &sums[static_cast<size_t>(3 * batch)] : nullptr);
    }
    comm_.all_reduce({sums.data(), static_cast<int64_t>(sums.size()), f64}, dist::ReduceOp::sum,
                     {"evaluation"});
    double loss = 0;
    double hits = 0;
    double targets = 0;
    for (size_t i = 0; i < sums.size(); i += 3) {
      loss += sums[i];
      hits += sums[i + 1];
      targets += sums[i + 2];
    }
    return {loss / targets, hits / targets};
  }

  void evaluate_batch(const data::Dataset& test, int64_t batch, int64_t size, double* sums) {
    const int64_t first = batch * size;
    const int64_t count = std::min(size, test.size() - first);
    std::vector<int64_t> indices(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      indices[static_cast<size_t>(i)] = first + i;
    const data::Batch rows = test.gather(indices, count, {});
    const Tensor logits = task_.logits(rows.inputs);
    if (!sums) return;
    sums[0] = task_.loss(logits, rows.targets).item();
    const Tensor targets = flatten(rows.targets);
    sums[1] = sum(eq(argmax(logits, 1), targets)).item();
    for (const int64_t index : indices)
      sums[2] += static_cast<double>(test.targets_of(index));
  }

  Task& task_;
  const CommonFlags& flags_;
  dist::Communicator& comm_;
  const TrainingNames& names_;
  std::optional<dist::Trace> trace_;
  nn::Module& model_;
  dist::Parallel parallel_;
  data::Loader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  StepClock clock_;
  double start_ = 0;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t trained_ = 0;
  double training_seconds_ = 0;
};

}  // namespace

void run_training(Task& task, const CommonFlags& flags, dist::Communicator& comm,
                  const TrainingNames& names) {
  Training(task, flags, comm, names).run();
}

}  // namespace weft::app
