// Trains an MNIST network: `mnist --help` lists what it takes.
#include "apps/common/command_line.h"
#include "apps/common/training.h"
#include "apps/mnist/train.h"

namespace {

int run(int argc, char** argv) {
  weft::app::MnistOptions options;
  if (const auto code = weft::app::parse_options(argc, argv, options)) return *code;
  return weft::app::run_trainer(
      options.common, "mnist",
      {.values = {{"model", options.model},
                  {"schedule", options.schedule},
                  {"momentum", options.momentum},
                  {"weight_decay", options.weight_decay},
                  {"clip", options.clip},
                  {"label_smoothing", options.label_smoothing},
                  {"flip", int64_t{options.flip}},
                  {"shift", options.shift}}},
      [&](weft::dist::Session& session) { weft::app::train_mnist(options, session); });
}

}  // namespace

int main(int argc, char** argv) {
  return weft::app::run_guarded("mnist", run, argc, argv);
}
