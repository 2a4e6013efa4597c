// `weft bench optim`: one optimizer step over many parameters.
#include "apps/common/optimizers.h"
#include "apps/weft/bench.h"
#include "weft.h"

namespace weft::app {
namespace {

constexpr int64_t kTensors = 160;  // as many as a ResNet-50 has

class BenchOptim final : public Bench {
 public:
  explicit BenchOptim(CommandLine& bench)
      : Bench(bench, "optim", "One step of an optimizer over 160 tensors.") {
    line->add_choice("--optimizer", optimizer_, optimizer_names(), "optimizer");
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
    const auto optimizer =
        make_optimizer(tensors, {.name = optimizer_, .lr = 1e-3, .adapt_vectors = true});
    // f32 values read and written for each parameter.
    double words =
        7;  // adam, adamw: read parameter, gradient, two moments; write all but the gradient
    if (optimizer_ == "sgd") words = 5;
    if (optimizer_ == "lars") words = 7;   // as sgd, after a first pass: parameter and gradient
    if (optimizer_ == "lamb") words = 11;  // as adamw, after a first pass that reads all four
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
