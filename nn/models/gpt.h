// A decoder-only transformer, GPT-2's plan (Radford et al., "Language models are unsupervised
// multitask learners", 2019, §2.3): pre-norm blocks, learned positions, a last LayerNorm, and a
// head that shares the embedding's weights (Press & Wolf 2017).
#pragma once

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/sequential.h"

namespace weft::nn::models {

struct GptOptions {
  int64_t vocabulary = 256;
  int64_t context = 128;  // the longest sequence
  int64_t layers = 6;
  int64_t width = 384;
  int64_t heads = 6;       // divides width
  double dropout = 0;      // of the embedding, of attention weights, and of each branch of a block
  bool tied = true;        // the head's weight is the embedding's
  bool recompute = false;  // blocks keep their inputs alone and run again in backward
};

// ids i64 or i32 [B, T], T up to the context, to logits [B, T, vocabulary]: what follows each
// token, from those up to it. Parameters: "tokens.weight", "positions.weight",
// "blocks.0.norm1.weight" and so forth, "norm.weight", and "head.weight" where it is not tied.
//
// Weights start from N(0, 0.02), those that write to the residual stream from 0.02 / sqrt(2
// layers), biases from 0.
class Gpt : public Module {
 public:
  explicit Gpt(const GptOptions& options = {});
  Tensor forward(const Tensor& ids) override;

  const GptOptions& options() const { return options_; }

  Embedding tokens;
  Embedding positions;
  Dropout dropout;
  Sequential blocks;  // of TransformerBlock
  LayerNorm norm;
  Linear head;  // without bias

 private:
  void initialise();

  GptOptions options_;
};

}  // namespace weft::nn::models
