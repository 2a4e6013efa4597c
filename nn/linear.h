// The linear layer and the embedding table.
#pragma once

#include "nn/module.h"

namespace weft::nn {

// x · weightᵀ + bias: [..., in] to [..., out].
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool with_bias = true);
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
};

// Rows of a table: ids (i64 or i32) of any shape to [ids…, width]. Starts from N(0, 1).
class Embedding : public Module {
 public:
  Embedding(int64_t entries, int64_t width);
  Tensor forward(const Tensor& ids) override;

  Tensor weight;  // [entries, width]
};

}  // namespace weft::nn
