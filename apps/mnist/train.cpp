#include "apps/mnist/train.h"

#include "apps/common/progress.h"
#include "apps/common/run_directory.h"
#include "apps/common/step_clock.h"
#include "data/images.h"
#include "data/loader.h"
#include "weft.h"

#include <algorithm>
#include <cstdio>
#include <memory>

namespace weft::app {
namespace {

// Mean and standard deviation of Fashion-MNIST's training pixels, of which each is in [0, 1].
constexpr double kMean = 0.2860;
constexpr double kStddev = 0.3530;
constexpr int64_t kEvaluationBatch = 500;

std::unique_ptr<optim::Optimizer> make_optimizer(const MnistOptions& o, nn::Module& model) {
  if (o.common.optimizer == "sgd") {
    return std::make_unique<optim::Sgd>(
        model.parameters(),
        optim::SgdOptions{
            .lr = o.common.lr, .momentum = o.momentum, .weight_decay = o.weight_decay});
  }
  const optim::AdamOptions adam{.lr = o.common.lr, .weight_decay = o.weight_decay};
  if (o.common.optimizer == "adam") return std::make_unique<optim::Adam>(model.parameters(), adam);
  return std::make_unique<optim::AdamW>(model.parameters(), adam);
}

struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

class MnistRun {
 public:
  explicit MnistRun(const MnistOptions& options)
      : options_(options),
        common_(options.common),
        train_(data::read_mnist(
            common_.data, true,
            {.mean = kMean, .stddev = kStddev, .flip = options.flip, .shift = options.shift})),
        test_(data::read_mnist(common_.data, false, {.mean = kMean, .stddev = kStddev})),
        model_(nn::models::make_mnist_model(options.model)),
        loader_(train_,
                {.batch = common_.global_batch, .seed = static_cast<uint64_t>(common_.seed)}) {
    WEFT_CHECK(train_.sample_shape() == test_.sample_shape() &&
                   train_.sample_shape() == Shape({1, 28, 28}) && train_.classes() <= 10 &&
                   test_.classes() <= 10 && train_.size() > 0 && test_.size() > 0,
               "mnist", "expected 28×28 images of ten classes in ", common_.data, ", got ",
               train_.size(), " and ", test_.size(), " of ", train_.sample_shape(), " and ",
               test_.sample_shape(), " with labels up to ",
               std::max(train_.classes(), test_.classes()) - 1);
    model_->to(dtype_from_name(common_.dtype));
    if (!common_.init.empty()) model_->load(common_.init);
    optimizer_ = make_optimizer(options_, *model_);
    const int64_t by_epochs = common_.epochs * loader_.batches();
    total_steps_ = common_.steps > 0 ? std::min(common_.steps, by_epochs) : by_epochs;
    schedule_ = make_schedule();
  }

  void run() {
    RunDirectory directory(common_.run_dir);
    Progress progress(common_.epochs, loader_.batches(), common_.quiet);
    const double start = seconds_now();
    progress.line(concat({"mnist: ", options_.model, ", ", model_->parameter_count(),
                          " parameters, ", common_.dtype, ", batch ", common_.global_batch, ", ",
                          total_steps_, " steps, ", common_.threads, " threads"}));
    Evaluation evaluation;
    double epoch_loss = 0;
    for (int64_t epoch = 0; step_ < total_steps_; ++epoch) {
      epoch_loss = train_epoch(epoch, start, directory, progress);
      evaluation = evaluate();
      char text[160];
      std::snprintf(
          text, sizeof text,
          "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f, %.0f images/s",
          static_cast<long long>(epoch + 1), epoch_loss, evaluation.loss, evaluation.accuracy,
          static_cast<double>(trained_) / training_seconds_);
      progress.line(text);
      directory.log(text);
    }
    if (!common_.export_to.empty()) model_->save(common_.export_to);
    directory.result({.app = "mnist",
                      .steps = step_,
                      .epochs = common_.epochs,
                      .train_loss = epoch_loss,
                      .test_loss = evaluation.loss,
                      .test_accuracy = evaluation.accuracy,
                      .images_per_second = static_cast<double>(trained_) / training_seconds_,
                      .wall_seconds = seconds_now() - start},
                     common_, clock_);
    progress.line("result: " + common_.run_dir + "/result.json");
  }

 private:
  optim::Schedule make_schedule() const {
    if (options_.schedule == "one_cycle") return optim::one_cycle(common_.lr, total_steps_);
    if (options_.schedule == "cosine") return optim::cosine(common_.lr, total_steps_);
    return optim::constant(common_.lr);
  }

  // The images in the form the model takes: [rows, 784] for the mlp, [rows, 1, 28, 28] for the cnn.
  Tensor as_input(const Tensor& images) const {
    const Tensor shaped = options_.model == "mlp" ? flatten(images, 1) : images;
    return to(shaped, dtype_from_name(common_.dtype));
  }

  // Returns the mean loss over the epoch's steps.
  double train_epoch(int64_t epoch, double start, RunDirectory& directory, Progress& progress) {
    model_->train();
    double sum = 0;
    int64_t step_in_epoch = 0;
    const double began = seconds_now();
    clock_.skip();
    while (step_ < total_steps_) {
      const auto batch = loader_.next();
      clock_.mark(Phase::data);
      if (!batch) break;
      begin_random_step(static_cast<uint64_t>(step_));
      const double lr = schedule_(step_);
      optimizer_->set_lr(lr);
      const float loss = train_step(*batch);
      ++step_;
      ++step_in_epoch;
      sum += static_cast<double>(loss);
      trained_ += batch->count;
      const double now = seconds_now();
      const double rate = static_cast<double>(trained_) / (training_seconds_ + now - began);
      directory.metrics({step_, epoch, loss, lr, rate, now - start});
      progress.step(epoch, step_in_epoch, static_cast<double>(loss), rate);
    }
    training_seconds_ += seconds_now() - began;
    return sum / static_cast<double>(std::max<int64_t>(step_in_epoch, 1));
  }

  // One step over a global batch, cut into micro-batches whose gradients add up. The loss is the
  // mean over the samples of the whole batch.
  float train_step(const data::Batch& batch) {
    optimizer_->zero_grad();
    const int64_t rows = common_.global_batch / common_.accumulate;
    double total = 0;
    for (int64_t first = 0; first < batch.count; first += rows) {
      const Tensor images = narrow(batch.inputs, 0, first, rows);
      const Tensor targets = narrow(batch.targets, 0, first, rows);
      const Tensor logits = (*model_)(as_input(images));
      const Tensor loss = cross_entropy(logits, targets,
                                        {.label_smoothing = options_.label_smoothing,
                                         .reduction = Reduction::sum}) *
                          (1.0 / static_cast<double>(batch.count));
      clock_.mark(Phase::forward);
      backward(loss);
      total += loss.item();
      clock_.mark(Phase::backward);
    }
    optimizer_->step();
    clock_.mark(Phase::optimizer);
    return static_cast<float>(total);
  }

  Evaluation evaluate() {
    const NoGrad no_grad;
    model_->eval();
    data::Loader loader(test_,
                        {.batch = kEvaluationBatch, .shuffle = false, .tail = data::Tail::shrink});
    Evaluation sum;
    while (const auto batch = loader.next()) {
      const Tensor logits = (*model_)(as_input(batch->inputs));
      sum.loss += cross_entropy(logits, batch->targets, {.reduction = Reduction::sum}).item();
      sum.accuracy += weft::sum(eq(argmax(logits, 1), batch->targets)).item();
    }
    const auto samples = static_cast<double>(test_.size());
    return {sum.loss / samples, sum.accuracy / samples};
  }

  MnistOptions options_;
  CommonFlags common_;
  data::Images train_;
  data::Images test_;
  Ref<nn::Module> model_;
  data::Loader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  StepClock clock_;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t trained_ = 0;
  double training_seconds_ = 0;
};

}  // namespace

void train_mnist(const MnistOptions& options) {
  MnistRun(options).run();
}

}  // namespace weft::app
