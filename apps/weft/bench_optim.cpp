// `weft bench optim`: one optimizer step over many parameters.
#include "apps/weft/bench.h"
#include "weft.h"

namespace weft::app {
namespace {

constexpr int64_t kTensors = 160;  // as many as a ResNet-50 has

class BenchOptim final : public Bench {
 public:
  explicit BenchOptim(CommandLine& bench)
      : Bench(bench, "optim", "One step of an optimizer over 160 tensors.") {
    line->add_choice("--optimizer", optimizer_, {"sgd", "adam", "adamw", "lars", "lamb"},
                     "optimizer");
    line->add("--parameters", parameters_, "parameters in all", kTensors, int64_t{1} << 34);
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    manual_seed(0);
    std::vector<Tensor> tensors;
    for (int64_t i = 0; i < kTensors; ++i) {
      const Tensor tensor = randn({parameters_ / kTensors}).set_requires_grad();
      tensor.set_grad(randn(tensor.shape()));
      tensors.push_back(tensor);
    }
    std::unique_ptr<optim::Optimizer> optimizer;
    double words = 7;  // read parameter, gradient, two moments; write all but the gradient
    if (optimizer_ == "sgd") {
      optimizer =
          std::make_unique<optim::Sgd>(tensors, optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
      words = 5;
    } else if (optimizer_ == "adam") {
      optimizer = std::make_unique<optim::Adam>(tensors, optim::AdamOptions{.lr = 1e-3});
    } else if (optimizer_ == "lars") {
      optimizer = std::make_unique<optim::Lars>(tensors, optim::LarsOptions{.adapt_vectors = true});
      words = 7;  // as sgd, after a first pass that reads parameter and gradient
    } else if (optimizer_ == "lamb") {
      optimizer = std::make_unique<optim::Lamb>(tensors, optim::LambOptions{.adapt_vectors = true});
      words = 11;  // as adamw, after a first pass that reads all four
    } else {
      optimizer = std::make_unique<optim::AdamW>(tensors, optim::AdamOptions{.lr = 1e-3});
    }
    const double seconds = median_seconds(9, 2, [&] { optimizer->step(); });
    const double bytes = words * 4 * static_cast<double>(parameters_ / kTensors * kTensors);
    rows.push_back({.bench = "optim",
                    .name = optimizer_,
                    .threads = threads,
                    .median_seconds = seconds,
                    .rate = bytes * 1e-9 / seconds,
                    .unit = "GB/s"});
    return std::nullopt;
  }

 private:
  std::string optimizer_ = "sgd";
  int64_t parameters_ = 25'000'000;
};

}  // namespace

std::unique_ptr<Bench> make_bench_optim(CommandLine& bench) {
  return std::make_unique<BenchOptim>(bench);
}

}  // namespace weft::app
