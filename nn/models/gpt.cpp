#include "nn/models/gpt.h"

#include "autograd/recompute.h"
#include "nn/init.h"
#include "ops/creation.h"

#include <cmath>

namespace weft::nn::models {
namespace {

constexpr double kDeviation = 0.02;

const GptOptions& checked(const GptOptions& o) {
  WEFT_CHECK(o.vocabulary >= 1 && o.context >= 1 && o.layers >= 1, "gpt",
             "expected a vocabulary, a context and layers of at least 1, got ", o.vocabulary, ", ",
             o.context, " and ", o.layers);
  WEFT_CHECK(o.width >= 1 && o.heads >= 1 && o.width % o.heads == 0, "gpt",
             "expected a width that heads divide evenly, got ", o.width, " and ", o.heads,
             " heads");
  return o;
}

}  // namespace

Gpt::Gpt(const GptOptions& options)
    : tokens(checked(options).vocabulary, options.width),
      positions(options.context, options.width),
      dropout(options.dropout),
      norm(options.width),
      head(options.width, options.vocabulary, false),
      options_(options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks.add<TransformerBlock>(
        options.width, options.heads,
        TransformerBlockOptions{.causal = true, .dropout = options.dropout});
  }
  add("tokens", tokens);
  add("positions", positions);
  add("dropout", dropout);
  add("blocks", blocks);
  add("norm", norm);
  add("head", head);
  if (options.tied) head.weight = tokens.weight;
  initialise();
}

void Gpt::initialise() {
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (const auto& [name, tensor] : named_parameters()) {
    if (name.ends_with(".bias")) {
      init::zeros_(tensor);
    } else if (tensor.dims() == 2) {
      const bool writes = name.ends_with("attention.out.weight") || name.ends_with("fc2.weight");
      init::normal_(tensor, 0, writes ? residual : kDeviation);
    }  // the norms' weights stay 1
  }
}

Tensor Gpt::forward(const Tensor& ids) {
  WEFT_CHECK(ids.dims() == 2 && ids.size(1) <= options_.context, "gpt",
             "expected ids [B, T] with T up to ", options_.context, ", got ", ids.shape());
  Tensor x = dropout(tokens(ids) + positions(arange(ids.size(1))));
  for (const auto& [name, block] : blocks.parts()) {
    if (options_.recompute) {
      x = recompute([block = block](std::span<const Tensor> in) { return (*block)(in[0]); },
                    {&x, 1});
    } else {
      x = (*block)(x);
    }
  }
  return head(norm(x));
}

}  // namespace weft::nn::models
