// Self-attention and the transformer block.
#pragma once

#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/norm.h"

namespace weft::nn {

struct MultiheadAttentionOptions {
  bool causal = false;  // position t sees positions up to t
  double dropout = 0;   // of attention weights, in training
  bool bias = true;
};

// Multi-head self-attention (Vaswani et al. 2017, §3.2.2) of x [N, T, width]. Queries, keys and
// values come from one product; each of `heads` heads is width / heads wide.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(int64_t width, int64_t heads, const MultiheadAttentionOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  // `mask` broadcasts to [N, heads, T, T]: bool (true: may be seen), or floating (added to the
  // scores). Undefined: none.
  Tensor forward(const Tensor& x, const Tensor& mask);

  Linear qkv;  // width to 3 * width: queries, then keys, then values
  Linear out;

 private:
  int64_t heads_;
  MultiheadAttentionOptions options_;
};

struct TransformerBlockOptions {
  bool causal = false;
  double dropout = 0;  // of attention weights, and of both branches
  int64_t hidden = 0;  // width of the inner layer; 0 stands for 4 * width
  double eps = 1e-5;
  bool bias = true;
  bool gelu_tanh = false;  // GELU by its tanh approximation
};

// x + attention(norm1(x)), then x + fc2(gelu(fc1(norm2(x)))): the pre-norm block (Xiong et al.
// 2020, §3.2).
class TransformerBlock : public Module {
 public:
  TransformerBlock(int64_t width, int64_t heads, const TransformerBlockOptions& options = {});
  Tensor forward(const Tensor& x) override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& mask);

  LayerNorm norm1;
  MultiheadAttention attention;
  LayerNorm norm2;
  Linear fc1;
  Gelu activation;
  Linear fc2;
  Dropout dropout;
};

}  // namespace weft::nn
