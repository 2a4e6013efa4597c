// Trains a transformer on a text and lets it write: `gpt --help` lists what it takes.
#include "apps/common/command_line.h"
#include "apps/common/ranks.h"
#include "apps/common/training.h"
#include "apps/gpt/train.h"

namespace {

int run(int argc, char** argv) {
  weft::app::GptAppOptions options;
  if (const auto code = weft::app::parse_options(argc, argv, options)) return *code;
  if (options.no_train) {
    return weft::app::run_ranks(argc, argv, options.common, [&](weft::dist::Communicator& comm) {
      weft::app::sample_gpt(options, comm);
    });
  }
  return weft::app::run_trainer(
      options.common, "gpt",
      {.values = {{"level", options.level},
                  {"schedule", options.schedule},
                  {"warmup", options.warmup},
                  {"weight_decay", options.weight_decay},
                  {"clip", options.clip},
                  {"validation", options.validation},
                  {"layers", options.gpt.model.layers},
                  {"width", options.gpt.model.width},
                  {"heads", options.gpt.model.heads},
                  {"context", options.gpt.model.context},
                  {"dropout", options.gpt.model.dropout}}},
      [&](weft::dist::Session& session) { weft::app::train_gpt(options, session); });
}

}  // namespace

int main(int argc, char** argv) {
  return weft::app::run_guarded("gpt", run, argc, argv);
}
