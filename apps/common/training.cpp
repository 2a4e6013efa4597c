#include "apps/common/training.h"

#include "apps/common/progress.h"
#include "apps/common/step_profile.h"
#include "data/loader.h"
#include "dist/agreement.h"
#include "dist/parallel.h"
#include "dist/trace.h"
#include "weft.h"

#include <algorithm>
#include <array>
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

// A checkpoint's own value of that name; 0 in one that was imported, and knows of no epoch begun.
double number_of(const dist::TrainingProgress& progress, const std::string& name) {
  for (const dist::NamedValue& value : progress.values) {
    if (value.name != name) continue;
    if (const auto* number = std::get_if<double>(&value.value)) return *number;
    if (const auto* integer = std::get_if<int64_t>(&value.value))
      return static_cast<double>(*integer);
  }
  return 0;
}

// A checkpoint's own value of that name, if it has one.
std::string text_of(const dist::TrainingProgress& progress, const std::string& name) {
  for (const dist::NamedValue& value : progress.values) {
    if (value.name != name) continue;
    if (const auto* text = std::get_if<std::string>(&value.value)) return *text;
  }
  return {};
}

std::string description_of(const data::Dataset& dataset) {
  const std::string identity = dataset.identity();
  return concat({dataset.size(), " samples of ", dataset.sample_shape(),
                 identity.empty() ? "" : ", ", identity});
}

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::optional<double> top5 = {};
  std::optional<int64_t> unreadable = {};  // samples, of all ranks, since the start
};

// Losses of the steps of an epoch that were not skipped.
struct EpochLoss {
  double sum = 0;
  int64_t count = 0;
  double mean() const { return sum / static_cast<double>(std::max<int64_t>(count, 1)); }
};

// Targets that are among the five likeliest classes of their row.
double hits_of_five(const Tensor& logits, const Tensor& targets) {
  const Tensor likeliest = topk(logits, std::min<int64_t>(5, logits.size(1))).indices;
  return sum(eq(likeliest, unsqueeze(targets, 1))).item();
}

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
                                  .tail = task.tail(),
                                  .rows = rows_of(session, parallel_, flags.global_batch),
                                  .threads = task.data_threads()}),
        optimizer_(task.make_optimizer(parallel_.parameters())),
        progress_(flags.epochs, loader_.batches(), flags.quiet || comm_.rank() != 0, names.rate) {
    if (!flags.trace.empty()) {
      trace_.emplace(comm_);
      session.set_span_listener(
          [this](const char* what, double begin, double end) { trace_->span(what, begin, end); });
    }
    if (flags.dtype == "f16") scaler_.emplace();
    if (task.ema_decay() > 0) {
      ema_.emplace(parallel_.parameters(), optim::EmaOptions{.decay = task.ema_decay()},
                   model_.named_buffers());
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
    const RunResult result{
        .app = names_.app,
        .steps = step_,
        .epochs = flags_.epochs,
        .train_loss = last_epoch_loss_,
        .test_loss = evaluation_.loss,
        .test_accuracy = evaluation_.accuracy,
        .test_top5 = evaluation_.top5,
        .unreadable = evaluation_.unreadable,
        .loss_scale = scaler_ ? std::optional(scaler_->scale()) : std::nullopt,
        .skipped_steps = scaler_ ? scaler_->skipped() : 0,
        .images_per_second = rate(),
        .wall_seconds = clock_seconds() - start_,
        .restarts = session_.restarts(),
        .parameters = parameter_elements(),
        .state = parallel_.state_bytes(),
        .optimizer_bytes = optimizer_->state_bytes() + (ema_ ? ema_->state_bytes() : 0)};
    const std::string text = result_text(result, flags_, session_.clock(), comm_);
    finish();
    if (trace_) trace_->write(flags_.trace);
    if (profile_) write_profile();
    if (directory_) directory_->write_whole("result.json", text);
    progress_.line("result: " + session_.directory() + "/result.json");
  }

 private:
  // What rank 0 does with the whole model in the end. It may take long: a large export, a long
  // text.
  void finish() {
    if (flags_.export_to.empty() && !task_.has_finish()) return;
    if (ema_) ema_->swap();
    parallel_.with_full_parameters([&] {
      session_.in_own_time("finish", [&] {
        if (!directory_) return;
        if (!flags_.export_to.empty()) model_.save(flags_.export_to, task_.metadata());
        if (task_.has_finish()) task_.finish(*directory_);
      });
    });
  }

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
    if (scaler_) checkpoints_->add(scaler_->state_dict());
    if (ema_) checkpoints_->add(*ema_);
    const auto resumed = session_.resume(*checkpoints_);
    if (!resumed) return;
    const dist::TrainingProgress& at = resumed->progress;
    const std::string before = text_of(at, "training_data");
    const std::string now = description_of(task_.training());
    WEFT_CHECK(before.empty() || before == now, "training", "expected the training data of ",
               resumed->path, " to go on with, ", before, "; got ", now);
    step_ = at.step;
    loader_.seek({at.epoch, at.consumed});
    epoch_loss_.sum = number_of(at, "epoch_loss");
    epoch_loss_.count = static_cast<int64_t>(number_of(at, "epoch_losses"));
    epoch_steps_ = static_cast<int64_t>(number_of(at, "epoch_steps"));
    note("resumed after step " + std::to_string(step_) + " from " + resumed->path);
  }

  void save(double loss) {
    const data::LoaderState at = loader_.state();
    session_.report({{"loss", loss}}, *checkpoints_,
                    {.step = step_,
                     .epoch = at.epoch,
                     .consumed = at.consumed,
                     .values = {{"training_data", description_of(task_.training())},
                                {"epoch_loss", epoch_loss_.sum},
                                {"epoch_losses", epoch_loss_.count},
                                {"epoch_steps", epoch_steps_}}});
  }

  void stop() {
    checkpoints_->wait();
    const auto newest = checkpoints_->directory().latest();
    const std::string stopped = concat({"stopped after step ", step_});
    if (newest && newest->step == step_)
      return note(stopped + ", which is saved: --resume auto goes on");
    note(stopped + ", which could not be saved" +
         (newest ? concat({": --resume auto goes on from step ", newest->step}) : std::string()));
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
    last_epoch_loss_ = std::exchange(epoch_loss_, {}).mean();
    epoch_steps_ = 0;
    dist::Metrics metrics = {{"train_loss", last_epoch_loss_},
                             {"test_loss", evaluation_.loss},
                             {"test_accuracy", evaluation_.accuracy}};
    if (evaluation_.top5) metrics.emplace_back("test_top5_accuracy", *evaluation_.top5);
    if (evaluation_.unreadable)
      metrics.emplace_back("unreadable_samples", static_cast<double>(*evaluation_.unreadable));
    session_.report(metrics);
    char top5[32] = "";
    if (evaluation_.top5) std::snprintf(top5, sizeof top5, ", top-5 %.4f", *evaluation_.top5);
    const std::string unreadable =
        evaluation_.unreadable.value_or(0) == 0
            ? ""
            : concat({", ", *evaluation_.unreadable, " samples unreadable"});
    char text[200];
    std::snprintf(text, sizeof text,
                  "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f%s, %.1f %s",
                  static_cast<long long>(epoch_ + 1), last_epoch_loss_, evaluation_.loss,
                  evaluation_.accuracy, top5, rate(), names_.rate.c_str());
    note(text + unreadable);
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
      parallel_.backward(loss, scaler_ ? scaler_->scale() : 1);
    }
    session_.begin(Phase::optimizer);
    parallel_.finish_gradients();
    const double loss = parallel_.loss();
    if (scaler_ && !scaler_->unscale(parallel_.parameters())) {
      parallel_.skip_step();
      return static_cast<float>(loss);
    }
    epoch_loss_.sum += static_cast<double>(static_cast<float>(loss));
    ++epoch_loss_.count;
    if (task_.clip_norm() > 0)
      optim::clip_grad_norm(parallel_.parameters(), task_.clip_norm(),
                            {.error_if_nonfinite = true});
    optimizer_->step();
    if (ema_) ema_->update();
    return static_cast<float>(loss);
  }

  // Ranks take batches of the test set in turn. Every batch is summed by itself, and batches in
  // their order, so that the result does not depend on who took which.
  Evaluation evaluate() {
    const NoGrad no_grad;
    model_.eval();
    if (ema_) ema_->swap();
    const data::Dataset& test = task_.test();
    const int64_t size = task_.evaluation_batch();
    const int64_t batches = (test.size() + size - 1) / size;
    std::vector<double> all(static_cast<size_t>(batches) * kSums + 1);
    for (int64_t first = 0; first < batches; first += comm_.size()) {
      session_.at("evaluation");
      const int64_t batch = first + comm_.rank();
      // With nothing left of its own, a rank goes along: its forward may gather parameters.
      evaluate_batch(test, batch < batches ? batch : 0, size,
                     batch < batches ? &all[static_cast<size_t>(batch) * kSums] : nullptr);
    }
    if (ema_) ema_->swap();
    const std::optional<int64_t> unreadable = task_.unreadable();
    all.back() = static_cast<double>(unreadable.value_or(0));
    comm_.all_reduce({all.data(), static_cast<int64_t>(all.size()), f64}, dist::ReduceOp::sum,
                     {"evaluation"});
    std::array<double, kSums> sums{};
    for (size_t i = 0; i + 1 < all.size(); ++i)
      sums[i % kSums] += all[i];
    WEFT_CHECK(sums[2] > 0, "evaluation",
               "expected at least one test sample that can be read, got ", "none of ", test.size());
    Evaluation result{sums[0] / sums[2], sums[1] / sums[2]};
    if (task_.top5()) result.top5 = sums[3] / sums[2];
    if (unreadable) result.unreadable = static_cast<int64_t>(all.back());
    return result;
  }

  static constexpr size_t kSums = 4;  // of a batch: loss, hits, targets, hits among five

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
    if (task_.top5()) sums[3] = hits_of_five(logits, targets);
    sums[2] = sum(ne(targets, static_cast<double>(data::kNoTarget))).item();
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
  std::optional<optim::LossScaler> scaler_;  // of f16
  std::optional<optim::Ema> ema_;
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
  EpochLoss epoch_loss_;     // of the present epoch
  int64_t epoch_steps_ = 0;  // of it, those that were skipped included
  double last_epoch_loss_ = 0;
  Evaluation evaluation_;
};

}  // namespace

void run_training(Task& task, const CommonFlags& flags, dist::Session& session,
                  const TrainingNames& names) {
  dist::check_agreement(session.comm(), "flags", flags.agreed);
  // Every rank reads its own copy, and the rows that it takes of a batch are right only if all are
  // alike.
  dist::check_agreement(session.comm(), "data",
                        {"training data: " + description_of(task.training()),
                         "test data: " + description_of(task.test())});
  Training(task, flags, session, names).run();
}

}  // namespace weft::app
