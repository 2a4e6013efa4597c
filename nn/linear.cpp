#include "nn/linear.h"

#include "nn/detail/make.h"
#include "nn/init.h"
#include "ops/index.h"
#include "ops/linear.h"

namespace weft::nn {

Linear::Linear(int64_t in, int64_t out, bool with_bias)
    : weight(detail::make_parameter({out, in})), bias(detail::make_parameter({out}, with_bias)) {
  init::default_weight_and_bias_(weight, bias);
  add_parameter("weight", weight);
  add_parameter("bias", bias);
}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight, bias);
}

Embedding::Embedding(int64_t entries, int64_t width)
    : weight(detail::make_parameter({entries, width})) {
  init::normal_(weight);
  add_parameter("weight", weight);
}

Tensor Embedding::forward(const Tensor& ids) {
  return embedding(weight, ids);
}

}  // namespace weft::nn
