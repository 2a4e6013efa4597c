#include "apps/common/gpt_flags.h"

namespace weft::app {

void add_gpt_flags(CommandLine& line, GptFlags& flags) {
  constexpr int64_t kMany = 1 << 20;
  nn::models::GptOptions& model = flags.model;
  line.add("--layers", model.layers, "transformer blocks", 1, 4096);
  line.add("--width", model.width, "numbers that stand for a token", 1, kMany);
  line.add("--heads", model.heads, "attention heads, a divisor of the width", 1, kMany);
  line.add("--context", model.context, "tokens of a sequence", 1, kMany);
  line.add("--dropout", model.dropout, "probability of dropout", 0.0, 1.0);
  line.add_switch("--untied", flags.untied,
                  "give the head weights of its own, not the embedding's");
  line.add_switch("--recompute", model.recompute,
                  "keep only the blocks' inputs and run the blocks again in backward");
}

std::optional<int> apply_gpt_flags(const CommandLine& line, GptFlags& flags) {
  nn::models::GptOptions& model = flags.model;
  if (model.width % model.heads != 0) {
    return line.reject("--heads: expected a divisor of --width " + std::to_string(model.width) +
                       ", got " + std::to_string(model.heads));
  }
  model.tied = !flags.untied;
  return std::nullopt;
}

}  // namespace weft::app
