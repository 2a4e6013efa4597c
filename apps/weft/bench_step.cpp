// `weft bench step`: a whole training step (forward, loss, backward, optimizer) on synthetic data.
#include "apps/weft/bench.h"
#include "weft.h"

namespace weft::app {
namespace {

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
    line->add_choice("--optimizer", optimizer_, {"sgd", "adam", "adamw"}, "optimizer");
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    if (model_ != "mlp" && model_ != "cnn") return later("--model", model_, "mlp or cnn");
    if (workers_ != 1) return later("--workers", std::to_string(workers_), "1");
    if (strategy_ != "single") return later("--strategy", strategy_, "single");
    if (dtype_ == "f16") return later("--dtype", dtype_, "f32 or bf16");
    if (image_size_ != 0 && image_size_ != 28)
      return line->reject("--image-size: expected 28 for " + model_);
    manual_seed(0);
    const auto model = nn::models::make_mnist_model(model_);
    const DType dtype = dtype_from_name(dtype_);
    model->to(dtype);
    model->train();
    const auto optimizer = make_optimizer(*model);
    const Tensor images =
        to(model_ == "mlp" ? randn({batch_, 784}) : randn({batch_, 1, 28, 28}), dtype);
    const Tensor targets = randint(0, 10, {batch_});
    const bool quick = model_ == "mlp";
    const double seconds = median_seconds(quick ? 300 : 15, quick ? 30 : 3, [&] {
      optimizer->zero_grad();
      backward(cross_entropy((*model)(images), targets));
      optimizer->step();
    });
    rows.push_back({.bench = "step",
                    .name = model_,
                    .threads = threads,
                    .dtype = dtype_,
                    .median_seconds = seconds,
                    .rate = static_cast<double>(batch_) / seconds,
                    .unit = "images/s"});
    return std::nullopt;
  }

 private:
  std::optional<int> later(const std::string& flag, const std::string& value,
                           const std::string& wanted) const {
    return line->reject(flag + ": expected " + wanted + ", got " + value +
                        ", which this version does not do yet");
  }

  std::unique_ptr<optim::Optimizer> make_optimizer(nn::Module& model) const {
    if (optimizer_ == "adam")
      return std::make_unique<optim::Adam>(model.parameters(), optim::AdamOptions{.lr = 1e-3});
    if (optimizer_ == "adamw") {
      return std::make_unique<optim::AdamW>(model.parameters(), optim::AdamOptions{.lr = 1e-3});
    }
    return std::make_unique<optim::Sgd>(model.parameters(),
                                        optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
  }

  std::string model_ = "cnn";
  std::string dtype_ = "f32";
  std::string strategy_ = "single";
  std::string optimizer_ = "sgd";
  int64_t batch_ = 128;
  int64_t image_size_ = 0;
  int64_t workers_ = 1;
};

}  // namespace

std::unique_ptr<Bench> make_bench_step(CommandLine& bench) {
  return std::make_unique<BenchStep>(bench);
}

}  // namespace weft::app
