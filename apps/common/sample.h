// Writing with a trained language model.
#pragma once

#include "data/text.h"
#include "nn/models/gpt.h"

#include <string>

namespace weft::app {

struct SampleOptions {
  int64_t length = 200;     // tokens to write, 0 for none
  double temperature = 1;   // 0: always the likeliest token
  int64_t top_k = 0;        // choose among so many likeliest tokens, 0 for all
  std::string prompt = {};  // empty: the text's first token
};

// The token that a row of logits (f32 or wider, `vocabulary` of them) gives: of the top_k
// likeliest, ties going to the lower token, one drawn with probability ~ exp(logit / temperature).
// `draw` is uniform in [0, 1).
int64_t choose_token(const Tensor& logits, const SampleOptions& options, double draw);

// `options.length` tokens after `prompt` (i32, at least one), as text without the prompt. Draws
// depend on `seed` and position alone. The model sees at most its context; it is left in evaluation
// mode.
std::string write_sample(nn::models::Gpt& model, const data::Tokenizer& tokenizer,
                         const Tensor& prompt, const SampleOptions& options, uint64_t seed);

}  // namespace weft::app
