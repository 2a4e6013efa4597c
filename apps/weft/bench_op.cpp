// `weft bench op`: single operators.
#include "apps/weft/bench.h"
#include "weft.h"

#include <cstdio>

namespace weft::app {
namespace {

class BenchOp final : public Bench {
 public:
  explicit BenchOp(CommandLine& bench)
      : Bench(bench, "op",
              "Single operators: one-element addition with and without "
              "autograd, matrix products, BatchNorm+add+ReLU.") {
    line->add("--case", only_, "measure this case alone");
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    manual_seed(0);
    const std::vector<std::pair<std::string, std::function<BenchRow()>>> cases = {
        {"add", [&] { return add_one(false); }},
        {"add_autograd", [&] { return add_one(true); }},
        {"matmul_1024_f32", [&] { return matmul_1024(f32); }},
        {"matmul_1024_bf16", [&] { return matmul_1024(bf16); }},
        {"bn_add_relu", [&] { return bn_add_relu(f32); }},
        {"bn_add_relu", [&] { return bn_add_relu(bf16); }},
    };
    for (const auto& [name, measure] : cases) {
      if (!only_.empty() && name != only_) continue;
      BenchRow row = measure();
      row.bench = "op";
      row.name = name;
      row.threads = threads;
      rows.push_back(row);
    }
    if (rows.empty())
      return line->reject("--case: expected a case of this table, got '" + only_ + "'");
    return std::nullopt;
  }

 private:
  static BenchRow add_one(bool autograd) {
    constexpr int kInner = 1000;
    const Tensor a = ones({1});
    const Tensor b = ones({1});
    a.set_requires_grad(autograd);
    const double seconds = median_seconds(15, 3,
                                          [&] {
                                            for (int i = 0; i < kInner; ++i)
                                              const Tensor c = a + b;
                                          }) /
                           kInner;
    return {.median_seconds = seconds, .rate = 1 / seconds, .unit = "op/s"};
  }

  static BenchRow matmul_1024(DType dtype) {
    const Tensor a = to(randn({1024, 1024}), dtype);
    const Tensor b = to(randn({1024, 1024}), dtype);
    const double seconds = median_seconds(15, 3, [&] { const Tensor c = matmul(a, b); });
    return {.dtype = to_string(dtype),
            .median_seconds = seconds,
            .rate = 2e-9 * 1024 * 1024 * 1024 / seconds,
            .unit = "GFLOP/s"};
  }

  // The end of a residual block, forward and backward. The rate counts what has to move: forward x
  // for the statistics, x and z, the result; backward the gradient and x for the sums, both again,
  // and two gradients.
  static BenchRow bn_add_relu(DType dtype) {
    const Shape shape{16, 256, 56, 56};
    const auto images = [&] { return to(channels_last(randn(shape)), dtype); };
    const Tensor x = images().set_requires_grad();
    const Tensor z = images().set_requires_grad();
    const Tensor g = images();
    const Tensor weight = ones({256}).set_requires_grad();
    const Tensor bias = zeros({256}).set_requires_grad();
    const Tensor mean = zeros({256});
    const Tensor var = ones({256});
    const double seconds = median_seconds(15, 3, [&] {
      for (const Tensor& leaf : {x, z, weight, bias})
        leaf.set_grad({});
      backward(batch_norm_relu(x, weight, bias, mean, var, {.training = true}, z), g);
    });
    return {.dtype = to_string(dtype),
            .median_seconds = seconds,
            .rate = 1e-9 * 10 * static_cast<double>(x.bytes()) / seconds,
            .unit = "GB/s"};
  }

  std::string only_;
};

}  // namespace

std::unique_ptr<Bench> make_bench_op(CommandLine& bench) {
  return std::make_unique<BenchOp>(bench);
}

}  // namespace weft::app
