// Trains an MNIST network: `mnist --help` lists what it takes.
#include "apps/common/command_line.h"
#include "apps/common/ranks.h"
#include "apps/mnist/train.h"

namespace {

int run(int argc, char** argv) {
  weft::app::MnistOptions options;
  if (const auto code = weft::app::parse_options(argc, argv, options)) return *code;
  return weft::app::run_ranks(argc, argv, options.common, [&](weft::dist::Communicator& comm) {
    weft::app::train_mnist(options, comm);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return weft::app::run_guarded("mnist", run, argc, argv);
}
