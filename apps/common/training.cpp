#include "apps/common/training.h"

#include "apps/common/progress.h"
#include "apps/common/step_profile.h"
#include "data/loader.h"
#include "dist/agreement.h"
#include "dist/parallel.h"
#include "dist/trace.h"
#include "weft.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace weft::app {
namespace {

using dist::clock_seconds;
using dist::Phase;

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

std::vector<data::RowRange> rows_of(const dist::Session& session, const dist::Parallel& parallel,
                                    int64_t batch) {
  std::vector<data::RowRange> rows;
  for (const auto& [first, count] : session.dataset_shard(parallel, batch))
    rows.push_back({first, count});
  return rows;
}

double number_of(const dist::TrainingProgress& progress, const std::string& name) {
  for (const dist::NamedValue& value : progress.values) {
    if (value.name != name) continue;
    if (const auto* number = std::get_if<double>(&value.value)) return *number;
    if (const auto* integer = std::get_if<int64_t>(&value.value))
      return static_cast<double>(*integer);
  }
  throw_error("training", {"expected '", name, "' in the checkpoint, got none"});
}

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

class Training {
 public:
  Training(Task& task, const CommonFlags& flags, dist::Session& session, const TrainingNames& names)
      : task_(task),
        flags_(flags),
        session_(session),
        comm_(session.comm()),
        names_(names),
        model_(prepared(task, flags)),
        parallel_(model_, comm_, parallel_options(task, flags)),
        loader_(task.training(), {.batch = flags.global_batch,
                                  .seed = static_cast<uint64_t>(flags.seed),
                                  .rows = rows_of(session, parallel_, flags.global_batch)}),
        optimizer_(task.make_optimizer(parallel_.parameters())),
        progress_(flags.epochs, loader_.batches(), flags.quiet || comm_.rank() != 0, names.rate) {
    if (!flags.trace.empty()) {
      trace_.emplace(comm_);
      session.set_span_listener(
          [this](const char* what, double begin, double end) { trace_->span(what, begin, end); });
    }
    if (flags.profile && comm_.rank() == 0) profile_.emplace();
    const int64_t by_epochs = flags.epochs * loader_.batches();
    total_steps_ = flags.steps > 0 ? std::min(flags.steps, by_epochs) : by_epochs;
    schedule_ = task.make_schedule(total_steps_);
  }

  void run() {
    const bool first = comm_.rank() == 0;
    if (first) directory_.emplace(session_.directory(), !flags_.quiet);
    progress_.line(headline());
    resume();
    start_ = clock_seconds() - session_.seconds_before();
    do {
      train_epoch();
      if (session_.stopped()) return stop();
      evaluate_epoch();
    } while (step_ < total_steps_);
    if (checkpoints_) checkpoints_->wait();
    if (!flags_.export_to.empty() || task_.has_finish()) {
      parallel_.with_full_parameters([&] {
        if (first && !flags_.export_to.empty()) model_.save(flags_.export_to, task_.metadata());
        if (task_.has_finish()) task_.finish(directory_ ? &*directory_ : nullptr);
      });
    }
    const RunResult result{.app = names_.app,
                           .steps = step_,
                           .epochs = flags_.epochs,
                           .train_loss = last_epoch_loss_,
                           .test_loss = evaluation_.loss,
                           .test_accuracy = evaluation_.accuracy,
                           .images_per_second = rate(),
                           .wall_seconds = clock_seconds() - start_,
                           .restarts = session_.restarts(),
                           .parameters = parameter_elements(),
                           .state = parallel_.state_bytes(),
                           .optimizer_bytes = optimizer_->state_bytes()};
    if (trace_) trace_->write(flags_.trace);
    if (profile_) write_profile();
    write_result(directory_ ? &*directory_ : nullptr, result, flags_, session_.clock(), comm_);
    progress_.line("result: " + session_.directory() + "/result.json");
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

  double rate() const {
    return training_seconds_ > 0 ? static_cast<double>(trained_) / training_seconds_ : 0;
  }

  // ---- checkpoints ----

  // Goes on where the run's newest checkpoint says, or begins at the beginning.
  void resume() {
    if (flags_.checkpoint_every == 0 && flags_.resume == "none") return;
    checkpoints_.emplace(model_, parallel_, session_.checkpoint_options());
    checkpoints_->add(*optimizer_);
    const auto resumed = session_.resume(*checkpoints_);
    if (!resumed) return;
    const dist::TrainingProgress& at = resumed->progress;
    step_ = at.step;
    loader_.seek({at.epoch, at.consumed});
    epoch_sum_ = number_of(at, "epoch_loss");
    epoch_steps_ = static_cast<int64_t>(number_of(at, "epoch_steps"));
    note("resumed after step " + std::to_string(step_) + " from " + resumed->path);
  }

  void save(double loss) {
    const data::LoaderState at = loader_.state();
    session_.report({{"loss", loss}}, *checkpoints_,
                    {.step = step_,
                     .epoch = at.epoch,
                     .consumed = at.consumed,
                     .values = {{"epoch_loss", epoch_sum_}, {"epoch_steps", epoch_steps_}}});
  }

  void stop() {
    if (checkpoints_) checkpoints_->wait();
    note("stopped after step " + std::to_string(step_) + ", which is saved: --resume auto goes on");
  }

  void note(const std::string& text) {
    progress_.line(text);
    if (directory_) directory_->log(text);
  }

  void write_profile() {
    if (profile_->empty()) return note("no profile: it begins with the second step after a start");
    const std::string table = profile_->table(model_);
    progress_.line(table);
    directory_->write("profile.txt", table);
  }

  // ---- an epoch ----

  void train_epoch() {
    model_.train();
    const double before = training_seconds_;
    const double began = clock_seconds();
    const int64_t epoch = loader_.state().epoch;
    while (step_ < total_steps_ && !session_.stopped()) {
      session_.begin_step(step_ + 1);
      const auto batch = loader_.next();
      if (!batch) break;
      const double lr = schedule_(step_);
      optimizer_->set_lr(lr);
      float loss = 0;
      const auto step = [&] { loss = train_step(*batch); };
      profile_ ? profile_->step(step) : step();
      ++step_;
      ++epoch_steps_;
      epoch_sum_ += static_cast<double>(loss);
      trained_ += batch->whole_count;
      const double now = clock_seconds();
      training_seconds_ = before + now - began;
      const dist::Session::Next next =
          session_.end_step({step_, epoch, loss, lr, rate(), now - start_});
      if (next.save || (step_ == total_steps_ && flags_.checkpoint_every > 0))
        save(static_cast<double>(loss));
      progress_.step(epoch, epoch_steps_, static_cast<double>(loss), rate());
    }
    epoch_ = epoch;
  }

  void evaluate_epoch() {
    const double began = clock_seconds();
    evaluation_ = evaluate();
    if (trace_) trace_->span("evaluation", began, clock_seconds());
    last_epoch_loss_ = epoch_sum_ / static_cast<double>(std::max<int64_t>(epoch_steps_, 1));
    epoch_sum_ = 0;
    epoch_steps_ = 0;
    session_.report({{"train_loss", last_epoch_loss_},
                     {"test_loss", evaluation_.loss},
                     {"test_accuracy", evaluation_.accuracy}});
    char text[160];
    std::snprintf(text, sizeof text,
                  "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f, %.1f %s",
                  static_cast<long long>(epoch_ + 1), last_epoch_loss_, evaluation_.loss,
                  evaluation_.accuracy, rate(), names_.rate.c_str());
    note(text);
  }

  // One step over a global batch. The loss is the mean over the targets of the whole of it.
  float train_step(const data::Batch& batch) {
    parallel_.begin_step(static_cast<uint64_t>(step_));
    int64_t at = 0;  // row of `batch`, which holds the rows of this rank's shards one by one
    for (const dist::Shard& shard : parallel_.shards()) {
      session_.begin(Phase::forward);
      const int64_t rows = shard.rows(flags_.global_batch);
      const int64_t row = shard.ghost ? 0 : std::exchange(at, at + rows);
      parallel_.begin_shard(shard, row < batch.count);
      const Tensor loss = task_.loss(task_.logits(narrow(batch.inputs, 0, row, rows)),
                                     narrow(batch.targets, 0, row, rows)) *
                          (1.0 / static_cast<double>(batch.whole_targets));
      session_.begin(Phase::backward);
      parallel_.backward(loss);
    }
    session_.begin(Phase::optimizer);
    parallel_.finish_gradients();
    if (task_.clip_norm() > 0)
      optim::clip_grad_norm(parallel_.parameters(), task_.clip_norm(),
                            {.error_if_nonfinite = true});
    optimizer_->step();
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
      session_.at("evaluation");
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
  dist::Session& session_;
  dist::Communicator& comm_;
  const TrainingNames& names_;
  std::optional<dist::Trace> trace_;
  std::optional<StepProfile> profile_;  // of rank 0
  nn::Module& model_;
  dist::Parallel parallel_;
  data::Loader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<dist::Checkpointer> checkpoints_;
  std::optional<RunDirectory> directory_;  // of rank 0
  Progress progress_;
  optim::Schedule schedule_;
  double start_ = 0;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t trained_ = 0;
  double training_seconds_ = 0;
  int64_t epoch_ = 0;        // the last one trained in
  double epoch_sum_ = 0;     // of the present epoch's losses
  int64_t epoch_steps_ = 0;  // of which there are so many
  double last_epoch_loss_ = 0;
  Evaluation evaluation_;
};

}  // namespace

void run_training(Task& task, const CommonFlags& flags, dist::Session& session,
                  const TrainingNames& names) {
  dist::check_agreement(session.comm(), "flags", flags.agreed);
  Training(task, flags, session, names).run();
}

}  // namespace weft::app
