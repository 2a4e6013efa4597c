// PyTorch's C++ side of `weft bench`: the workloads of torch_peer.py that a C++ program can be
// compared on.
//
//   libtorch_peer op   --threads N --json FILE
//   libtorch_peer step --threads N --model mlp|cnn --global-batch N --json FILE
//
// scripts/peers.sh builds it. Exit code 3: a workload it does not measure.

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

template <class Function>
double median_seconds(Function function, int rounds, int warm_up) {
  for (int i = 0; i < warm_up; ++i)
    function();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

struct Output {
  std::FILE* file = stdout;
  int threads = 1;

  void row(const char* bench, const char* name, double seconds, double rate,
           const char* unit) const {
    std::fprintf(file,
                 "{\"bench\":\"%s\",\"case\":\"%s\",\"threads\":%d,\"workers\":1,"
                 "\"dtype\":\"f32\",\"median_seconds\":%.9g,\"rate\":%.9g,\"unit\":\"%s\"}\n",
                 bench, name, threads, seconds, rate, unit);
    std::fflush(file);
  }
};

double time_add(const torch::Tensor& left, const torch::Tensor& right) {
  constexpr int repeats = 1000;
  const auto many = [&] {
    for (int i = 0; i < repeats; ++i)
      torch::Tensor sum = left + right;
  };
  return median_seconds(many, 15, 3) / repeats;
}

void bench_op(const Output& output) {
  const auto one = torch::ones(1);
  double seconds = time_add(torch::ones(1), one);
  output.row("op", "add", seconds, 1 / seconds, "ops/s");
  seconds = time_add(torch::ones(1, torch::requires_grad()), one);
  output.row("op", "add_autograd", seconds, 1 / seconds, "ops/s");
}

void bench_mlp(const Output& output, std::int64_t batch) {
  torch::nn::Sequential model(torch::nn::Linear(784, 128), torch::nn::ReLU(),
                              torch::nn::Linear(128, 10));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto inputs = torch::randn({batch, 784});
  const auto targets = torch::randint(0, 10, {batch}, torch::kLong);
  const auto step = [&] {
    optimizer.zero_grad(true);
    torch::nn::functional::cross_entropy(model->forward(inputs), targets).backward();
    optimizer.step();
  };
  const double seconds = median_seconds(step, 300, 30);
  output.row("step", "mlp", seconds, static_cast<double>(batch) / seconds, "images/s");
}

void bench_cnn(const Output& output, std::int64_t batch) {
  const auto layout = torch::MemoryFormat::ChannelsLast;
  torch::nn::Conv2d conv1(torch::nn::Conv2dOptions(1, 32, 3).padding(1));
  torch::nn::Conv2d conv2(torch::nn::Conv2dOptions(32, 64, 3).padding(1));
  torch::nn::Linear linear1(64 * 7 * 7, 128);
  torch::nn::Linear linear2(128, 10);
  std::vector<torch::Tensor> parameters;
  const auto collect = [&](const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters())
      parameters.push_back(parameter);
  };
  collect(*conv1);
  collect(*conv2);
  collect(*linear1);
  collect(*linear2);
  conv1->weight.set_data(conv1->weight.contiguous(layout));
  conv2->weight.set_data(conv2->weight.contiguous(layout));
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto inputs = torch::randn({batch, 1, 28, 28}).contiguous(layout);
  const auto targets = torch::randint(0, 10, {batch}, torch::kLong);
  const auto step = [&] {
    optimizer.zero_grad(true);
    auto hidden = torch::max_pool2d(torch::relu(conv1(inputs)), 2);
    hidden = torch::max_pool2d(torch::relu(conv2(hidden)), 2);
    const auto scores = linear2(torch::relu(linear1(hidden.flatten(1))));
    torch::nn::functional::cross_entropy(scores, targets).backward();
    optimizer.step();
  };
  const double seconds = median_seconds(step, 20, 3);
  output.row("step", "cnn", seconds, static_cast<double>(batch) / seconds, "images/s");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  std::map<std::string, std::string> flags;
  for (int i = 2; i + 1 < argc; i += 2)
    flags[argv[i]] = argv[i + 1];
  const std::string model = flags["--model"];
  if (what != "op" && !(what == "step" && (model == "mlp" || model == "cnn"))) return 3;

  Output output;
  if (flags.count("--threads") != 0) output.threads = std::atoi(flags["--threads"].c_str());
  if (flags.count("--json") != 0) output.file = std::fopen(flags["--json"].c_str(), "w");
  if (output.file == nullptr) {
    std::perror(flags["--json"].c_str());
    return 1;
  }
  const std::int64_t batch =
      flags.count("--global-batch") != 0 ? std::atoll(flags["--global-batch"].c_str()) : 64;

  torch::set_num_threads(output.threads);
  torch::manual_seed(0);
  if (what == "op") {
    bench_op(output);
  } else if (model == "mlp") {
    bench_mlp(output, batch);
  } else {
    bench_cnn(output, batch);
  }
  return 0;
}
