// Trains a transformer on a text and lets it write: `gpt --help` lists what it takes.
#include "apps/common/command_line.h"
#include "apps/common/ranks.h"
#include "apps/gpt/train.h"

namespace {

int run(int argc, char** argv) {
  weft::app::GptAppOptions options;
  if (const auto code = weft::app::parse_options(argc, argv, options)) return *code;
  return weft::app::run_ranks(argc, argv, options.common, [&](weft::dist::Communicator& comm) {
    weft::app::train_gpt(options, comm);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return weft::app::run_guarded("gpt", run, argc, argv);
}
