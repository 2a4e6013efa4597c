#include "apps/gpt/options.h"

namespace weft::app {
namespace {

constexpr const char* kText = "/usr/share/common-licenses/GPL-3";  // on every Debian system

}  // namespace

std::optional<int> parse_options(int argc, char** argv, GptAppOptions& options) {
  options.common.data = kText;
  options.common.run_dir = "runs/gpt";
  options.common.global_batch = 16;
  options.common.epochs = 20;
  options.common.lr = 2e-3;
  options.common.optimizer = "adamw";
  options.gpt.model.layers = 4;
  options.gpt.model.width = 128;
  options.gpt.model.heads = 4;
  CommandLine line(
      "gpt",
      "Trains a small transformer to continue a text file (--data FILE; by default the "
      "GNU GPL, which is on every Debian system), then lets it write.");
  add_gpt_flags(line, options.gpt);
  line.add_choice("--level", options.level, {"bytes", "characters"}, "what a token is");
  line.add("--validation", options.validation, "share of the text, its end, to test on", 0.0, 1.0);
  line.add_choice("--schedule", options.schedule, {"constant", "cosine"},
                  "learning-rate schedule after the warm-up");
  line.add("--warmup", options.warmup, "steps over which the learning rate rises", 0);
  line.add("--weight-decay", options.weight_decay, "weight decay", 0.0, 1e3);
  line.add("--clip", options.clip, "largest norm of the gradient, 0 for any", 0.0, 1e6);
  line.add_switch("--no-train", options.no_train, "only write, with the weights of --init");
  line.add("--sample", options.sample.length, "tokens to write in the end, 0 for none", 0, 1 << 20);
  line.add("--temperature", options.sample.temperature,
           "how boldly to choose tokens; 0 takes the likeliest", 0.0, 100.0);
  line.add("--top-k", options.sample.top_k, "choose among so many likeliest tokens, 0 for all", 0);
  line.add("--prompt", options.sample.prompt, "what to continue; empty for the text's first token");
  add_common_flags(line, options.common);
  if (const auto code = line.parse(argc, argv)) return code;
  if (options.validation <= 0 || options.validation >= 1)
    return line.reject("--validation: expected a share between 0 and 1");
  if (options.no_train && options.common.init.empty())
    return line.reject("--no-train: expected weights by --init");
  constexpr const char* kOfTraining[] = {"--export", "--resume", "--checkpoint-every", "--epochs",
                                         "--steps",  "--lr",     "--optimizer",        "--schedule",
                                         "--trace",  "--inject", "--max-failures",     "--profile"};
  for (const char* flag : kOfTraining) {
    if (options.no_train && line.given(flag))
      return line.reject(std::string(flag) + ": expected none with --no-train");
  }
  if (const auto code = apply_gpt_flags(line, options.gpt)) return code;
  return apply_common_flags(line, options.common);
}

}  // namespace weft::app
