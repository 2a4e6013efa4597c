// `weft bench step`: a whole training step (forward, loss, backward, optimizer) on synthetic data.
#include "apps/common/gpt_flags.h"
#include "apps/common/optimizers.h"
#include "apps/common/step_profile.h"
#include "apps/weft/bench.h"
#include "apps/weft/bench_ranks.h"
#include "core/parallel.h"
#include "dist/parallel.h"
#include "dist/thread_ranks.h"
#include "weft.h"

#include <cstdio>

namespace weft::app {
namespace {

// What a step computes: a model, and its loss over one global batch.
struct Work {
  Ref<nn::Module> model;
  std::function<Tensor(nn::Module&)> loss;
  int repeats = 15;
  int warmup = 3;
};

class BenchStep final : public Bench {
 public:
  explicit BenchStep(CommandLine& bench)
      : Bench(bench, "step", "A whole training step of a model on synthetic data.") {
    line->add_choice("--model", model_, {"mlp", "cnn", "resnet20", "resnet18", "resnet50", "gpt"},
                     "model");
    line->add("--global-batch", batch_, "samples of one step", 1, 1 << 20);
    line->add("--image-size", image_size_, "side of the images, 0 for the model's own", 0, 1 << 14);
    line->add_choice("--dtype", dtype_, {"f32", "bf16", "f16"},
                     "type of parameters and activations");
    line->add("--workers", workers_, "ranks", 1, 1 << 20);
    line->add_choice("--strategy", strategy_, {"single", "ddp", "zero1", "zero2", "zero3", "fsdp"},
                     "strategy");
    line->add_choice("--optimizer", optimizer_, optimizer_names(), "optimizer");
    line->add_switch("--profile", profile_,
                     "also print the time by operator and layer, and how far from the machine's "
                     "best; one rank alone");
    add_gpt_flags(*line, gpt_);
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    if (!line->given("--strategy")) strategy_ = workers_ > 1 ? "ddp" : "single";
    if (strategy_ == "single" && workers_ > 1)
      return line->reject("--strategy: expected one for several ranks, got single");
    if (batch_ % workers_ != 0) {
      return line->reject("--global-batch: expected a multiple of " + std::to_string(workers_) +
                          " ranks, got " + std::to_string(batch_));
    }
    if (profile_ && strategy_ != "single")
      return line->reject("--profile: expected --strategy single, got " + strategy_);
    if (!is_resnet() && image_size_ != 0 && (model_ == "gpt" || image_size_ != 28))
      return line->reject("--image-size: expected " + std::string(model_ == "gpt" ? "none" : "28") +
                          " for " + model_);
    if (const auto code = check_gpt()) return code;
    const double seconds = measure_all();
    rows.push_back({.bench = "step",
                    .name = model_,
                    .threads = threads,
                    .workers = workers_,
                    .dtype = dtype_,
                    .median_seconds = seconds,
                    .rate = static_cast<double>(batch_) / seconds,
                    .unit = model_ == "gpt" ? "samples/s" : "images/s"});
    return std::nullopt;
  }

 private:
  bool is_resnet() const { return model_.starts_with("resnet"); }

  Work make_work(int64_t rows) const {
    manual_seed(0);
    if (is_resnet()) return make_resnet(rows);
    return model_ == "gpt" ? make_gpt(rows) : make_mnist(rows);
  }

  double measure_all() const {
    if (strategy_ == "single" && dtype_ == "f16") {  // whose f32 masters are those of a Parallel
      const auto alone = dist::make_single_rank();
      return measure_on(*alone);
    }
    if (strategy_ == "single") return measure();
    return measure_on_processes(
               {.workers = static_cast<int>(workers_)}, 1,
               [&](dist::Communicator& comm) { return std::vector<double>{measure_on(comm)}; })
        .front();
  }

  // The loop of a program that knows nothing of ranks.
  double measure() const {
    const Work work = make_work(batch_);
    work.model->to(dtype_from_name(dtype_));
    const auto optimizer = step_by(work.model->parameters());
    const auto step = [&] {
      optimizer->zero_grad();
      backward(work.loss(*work.model));
      optimizer->step();
    };
    const double seconds = median_seconds(work.repeats, work.warmup, step);
    if (profile_) print_profile(*work.model, work.repeats, step);
    return seconds;
  }

  static void print_profile(nn::Module& model, int steps, const std::function<void()>& step) {
    StepProfile profile;
    for (int i = 0; i <= steps; ++i)
      profile.step(step);
    std::printf("%s\n", profile.table(model).c_str());
  }

  // The same on one of several ranks.
  double measure_on(dist::Communicator& comm) const {
    set_num_threads(static_cast<int>(threads));
    const Work work = make_work(batch_ / workers_);
    dist::ParallelOptions options{.strategy = strategy_};
    if (dtype_ != "f32") options.parameter_dtype = dtype_from_name(dtype_);
    if (strategy_ == "fsdp" && model_ == "gpt") options.wrap.types = {"TransformerBlock"};
    if (strategy_ == "fsdp" && is_resnet()) {
      options.wrap.types = {nn::models::resnet_plan(model_).bottleneck ? "Bottleneck"
                                                                       : "BasicBlock"};
    }
    dist::Parallel parallel(*work.model, comm, options);
    const auto optimizer = step_by(parallel.parameters());
    std::optional<optim::LossScaler> scaler;
    if (dtype_ == "f16") scaler.emplace();
    return median_seconds(work.repeats, work.warmup, [&] {
      comm.barrier();
      if (!scaler) {
        backward(work.loss(*work.model));
        return optimizer->step();
      }
      backward(work.loss(*work.model) * scaler->scale());
      if (scaler->unscale(parallel.parameters())) {
        optimizer->step();
      } else {
        parallel.skip_step();
      }
    });
  }

  // The gpt's flags go with the gpt alone.
  std::optional<int> check_gpt() {
    if (model_ == "gpt") return apply_gpt_flags(*line, gpt_);
    for (const char* flag : kGptFlags) {
      if (line->given(flag))
        return line->reject(std::string(flag) + ": expected --model gpt, got " + model_);
    }
    return std::nullopt;
  }

  Work make_mnist(int64_t rows) const {
    Work work;
    work.model = nn::models::make_mnist_model(model_);
    const DType dtype = dtype_from_name(dtype_);
    const Tensor images =
        to(model_ == "mlp" ? randn({rows, 784}) : randn({rows, 1, 28, 28}), dtype);
    const Tensor targets = randint(0, 10, {rows});
    work.loss = [images, targets](nn::Module& model) {
      return cross_entropy(model(images), targets);
    };
    if (model_ == "mlp") {
      work.repeats = 300;
      work.warmup = 30;
    }
    return work;
  }

  Work make_gpt(int64_t rows) const {
    Work work;
    work.model = make_ref<nn::models::Gpt>(gpt_.model);
    const int64_t vocabulary = gpt_.model.vocabulary;
    const Tensor ids = randint(0, vocabulary, {rows, gpt_.model.context});
    const Tensor targets = randint(0, vocabulary, {rows * gpt_.model.context});
    work.loss = [ids, targets](nn::Module& model) {
      return cross_entropy(flatten(model(ids), 0, 1), targets);
    };
    work.repeats = 7;
    work.warmup = 2;
    return work;
  }

  // Images as they come from a pipeline: channels-last.
  Work make_resnet(int64_t rows) const {
    const nn::models::ResNetPlan plan = nn::models::resnet_plan(model_);
    const int64_t classes = plan.small_images ? 10 : 1000;
    const int64_t side = image_size_ > 0 ? image_size_ : plan.image_size;
    Work work;
    work.model = nn::models::make_resnet(model_, {.classes = classes});
    const Tensor images = to(channels_last(randn({rows, 3, side, side})), dtype_from_name(dtype_));
    const Tensor targets = randint(0, classes, {rows});
    work.loss = [images, targets](nn::Module& model) {
      return cross_entropy(model(images), targets);
    };
    work.repeats = 5;
    work.warmup = 2;
    return work;
  }

  std::unique_ptr<optim::Optimizer> step_by(const optim::Parameters& parameters) const {
    const bool adam = optimizer_ == "adam" || optimizer_ == "adamw" || optimizer_ == "lamb";
    return make_optimizer(parameters, {.name = optimizer_, .lr = adam ? 1e-3 : 0.01});
  }

  GptFlags gpt_;
  std::string model_ = "cnn";
  std::string dtype_ = "f32";
  std::string strategy_ = "single";
  std::string optimizer_ = "sgd";
  bool profile_ = false;
  int64_t batch_ = 128;
  int64_t image_size_ = 0;
  int64_t workers_ = 1;
};

}  // namespace

std::unique_ptr<Bench> make_bench_step(CommandLine& bench) {
  return std::make_unique<BenchStep>(bench);
}

}  // namespace weft::app
