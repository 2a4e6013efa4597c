#include "nn/attention.h"

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace weft::nn {

MultiheadAttention::MultiheadAttention(int64_t width, int64_t heads,
                                       const MultiheadAttentionOptions& options)
    : qkv(width, 3 * width, options.bias),
      out(width, width, options.bias),
      heads_(heads),
      options_(options) {
  WEFT_CHECK(heads >= 1 && width % heads == 0, "attention",
             "expected a width that heads divide evenly, got ", width, " and ", heads, " heads");
  WEFT_CHECK(options.dropout >= 0 && options.dropout <= 1, "attention",
             "expected a dropout in [0, 1], got ", options.dropout);
  add("qkv", qkv);
  add("out", out);
}

Tensor MultiheadAttention::forward(const Tensor& x, const Tensor& mask) {
  const int64_t width = out.weight.size(0);
  WEFT_CHECK(x.dims() == 3 && x.size(2) == width, "attention", "expected x of [N, T, ", width,
             "], got ", x.shape());
  const int64_t batch = x.size(0);
  const int64_t length = x.size(1);
  // [N, T, 3 width] → three of [N, heads, T, width / heads]
  const std::vector<Tensor> parts = split(qkv(x), width, 2);
  const auto by_head = [&](const Tensor& part) {
    return transpose(reshape(part, {batch, length, heads_, width / heads_}), 1, 2);
  };
  const Tensor heads = scaled_dot_product_attention(
      by_head(parts[0]), by_head(parts[1]), by_head(parts[2]),
      {.mask = mask, .causal = options_.causal, .dropout = training() ? options_.dropout : 0});
  return out(reshape(transpose(heads, 1, 2), {batch, length, width}));
}

TransformerBlock::TransformerBlock(int64_t width, int64_t heads,
                                   const TransformerBlockOptions& options)
    : norm1(width, options.eps),
      attention(width, heads,
                {.causal = options.causal, .dropout = options.dropout, .bias = options.bias}),
      norm2(width, options.eps),
      fc1(width, options.hidden > 0 ? options.hidden : 4 * width, options.bias),
      activation(options.gelu_tanh),
      fc2(fc1.weight.size(0), width, options.bias),
      dropout(options.dropout) {
  add("norm1", norm1);
  add("attention", attention);
  add("norm2", norm2);
  add("fc1", fc1);
  add("activation", activation);
  add("fc2", fc2);
  add("dropout", dropout);
}

Tensor TransformerBlock::forward(const Tensor& x, const Tensor& mask) {
  const Tensor normed = norm1(x);
  const Tensor seen = mask.defined() ? attention.forward(normed, mask) : attention(normed);
  const Tensor y = x + dropout(seen);
  return y + dropout(fc2(activation(fc1(norm2(y)))));
}

}  // namespace weft::nn
