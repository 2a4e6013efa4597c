// Every operator, forward and gradient, against values PyTorch computed (make_ops.py).
#include "core/safetensors.h"
#include "weft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

namespace weft {
namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

#define UNARY(name)                                     \
  {                                                     \
#name, [](const Inputs& in) { return name(in[0]); } \
  }
#define BINARY(name)                                           \
  {                                                            \
#name, [](const Inputs& in) { return name(in[0], in[1]); } \
  }
#define CASE(name, ...)                                                            \
  {                                                                                \
#name, []([[maybe_unused]] const Inputs& in) -> Tensor { return __VA_ARGS__; } \
  }

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> map = {
      UNARY(neg),
      UNARY(abs),
      UNARY(exp),
      UNARY(expm1),
      UNARY(sin),
      UNARY(cos),
      UNARY(tanh),
      UNARY(sigmoid),
      UNARY(relu),
      UNARY(square),
      UNARY(erf),
      UNARY(sign),
      UNARY(floor),
      UNARY(ceil),
      UNARY(round),
      UNARY(log),
      UNARY(log1p),
      UNARY(sqrt),
      UNARY(rsqrt),
      UNARY(reciprocal),
      UNARY(gelu),
      UNARY(gelu_tanh),
      UNARY(silu),
      UNARY(softplus),
      CASE(leaky_relu, leaky_relu(in[0], 0.2)),
      CASE(elu, elu(in[0], 0.7)),
      CASE(clamp, clamp(in[0], -0.5, 0.8)),
      BINARY(add),
      BINARY(sub),
      BINARY(mul),
      BINARY(maximum),
      BINARY(minimum),
      BINARY(div),
      BINARY(pow),
      CASE(pow_scalar, pow(in[0], 3.0)),
      CASE(add_broadcast, in[0] + in[1]),
      CASE(mul_scalar, in[0] * 2.5),
      CASE(rsub_scalar, 1.5 - in[0]),
      BINARY(eq),
      BINARY(ne),
      BINARY(lt),
      BINARY(le),
      BINARY(gt),
      BINARY(ge),
      CASE(where, where(in[0], in[1], in[2])),
      CASE(masked_fill, masked_fill(in[0], in[1], -2.0)),

      UNARY(sum),
      UNARY(mean),
      UNARY(prod),
      UNARY(max),
      CASE(sum_dims, sum(in[0], {0, 2})),
      CASE(mean_keepdim, mean(in[0], {1}, true)),
      CASE(prod_dim, prod(in[0], {1})),
      CASE(max_dim, max(in[0], 1).values),
      CASE(min_dim, min(in[0], 2).values),
      CASE(amax, amax(in[0], {0, 1})),
      CASE(argmax, argmax(in[0], 1)),
      CASE(argmin, argmin(in[0], 2)),
      CASE(var, var(in[0], {1, 2})),
      CASE(var_population, var(in[0], {0}, 0)),
      CASE(stddev, stddev(in[0], {2})),
      CASE(norm, norm(in[0])),
      CASE(norm1_dim, norm(in[0], 1, {1})),
      CASE(norm3_dim, norm(in[0], 3, {2})),
      CASE(norm_inf, norm(in[0], HUGE_VAL)),
      CASE(logsumexp, logsumexp(in[0], {1})),
      CASE(cumsum, cumsum(in[0], 1)),
      CASE(softmax, softmax(in[0], -1)),
      CASE(softmax_dim1, softmax(in[0], 1)),
      CASE(log_softmax, log_softmax(in[0], 2)),

      CASE(reshape, reshape(in[0], {4, -1})),
      CASE(permute, permute(in[0], {2, 0, 1})),
      CASE(transpose, transpose(in[0], 0, 2)),
      CASE(slice, slice(in[0], 1, 0, 3, 2)),
      CASE(select, select(in[0], 1, -1)),
      CASE(narrow, narrow(in[0], 2, 1, 2)),
      CASE(expand, expand(in[0], {3, 4})),
      CASE(squeeze, squeeze(in[0], 1)),
      CASE(unsqueeze, unsqueeze(in[0], 1)),
      CASE(flatten, flatten(in[0], 1)),
      CASE(split, split(in[0], std::vector<int64_t>{1, 3}, 2)[1]),
      CASE(chunk, chunk(in[0], 2, 1)[0]),
      CASE(cat, cat(in, 1)),
      CASE(stack, stack(in, 1)),
      CASE(pad, pad(in[0], {1, 2, 0, 1}, 0.5)),

      CASE(gather, gather(in[0], 1, in[1])),
      CASE(index_select, index_select(in[0], 0, in[1])),
      CASE(scatter_add, scatter_add(in[0], 1, in[1], in[2])),
      CASE(embedding, embedding(in[0], in[1])),
      CASE(one_hot, one_hot(in[0], 4)),
      CASE(topk, topk(in[0], 2, 1).values),
      CASE(sort, sort(in[0], 1, true).values),
      CASE(argsort, argsort(in[0], 0)),

      CASE(matmul, matmul(in[0], in[1])),
      CASE(matmul_vector, matmul(in[0], in[1])),
      CASE(matmul_dot, matmul(in[0], in[1])),
      CASE(matmul_batch, matmul(in[0], in[1])),
      CASE(linear, linear(in[0], in[1], in[2])),
      CASE(attention, scaled_dot_product_attention(in[0], in[1], in[2])),
      CASE(attention_causal, scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true})),
      CASE(attention_mask, scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]})),

      CASE(conv2d, conv2d(in[0], in[1], in[2], {.padding = {1, 1}})),
      CASE(conv2d_stride, conv2d(in[0], in[1], {}, {.stride = {2, 2}, .padding = {1, 2}})),
      CASE(conv2d_groups, conv2d(in[0], in[1], in[2], {.padding = {1, 1}, .groups = 2})),
      CASE(conv2d_depthwise, conv2d(in[0], in[1], {}, {.padding = {1, 1}, .groups = 4})),
      CASE(conv2d_dilation, conv2d(in[0], in[1], {}, {.dilation = {2, 2}})),
      CASE(conv2d_wide, conv2d(in[0], in[1], in[2], {.padding = {1, 1}})),
      CASE(conv2d_one_channel, conv2d(in[0], in[1], in[2], {.padding = {1, 1}})),
      CASE(conv_transpose2d,
           conv_transpose2d(in[0], in[1], in[2],
                            {.stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}})),
      CASE(conv_transpose2d_groups,
           conv_transpose2d(in[0], in[1], {}, {.dilation = {2, 2}, .groups = 2})),
      CASE(max_pool2d, max_pool2d(in[0], {2, 2})),
      CASE(max_pool2d_padded,
           max_pool2d(in[0], {3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true})),
      CASE(avg_pool2d, avg_pool2d(in[0], {2, 3}, {.stride = {2, 2}, .padding = {1, 1}})),
      CASE(avg_pool2d_exclude,
           avg_pool2d(in[0], {3, 3},
                      {.stride = {2, 2}, .padding = {1, 1}, .count_include_pad = false})),
      CASE(adaptive_avg_pool2d, adaptive_avg_pool2d(in[0], {3, 2})),
      CASE(adaptive_max_pool2d, adaptive_max_pool2d(in[0], {2, 3})),

      CASE(batch_norm, batch_norm(in[0], in[1], in[2], {}, {}, {.training = true})),
      CASE(batch_norm_eval, batch_norm(in[0], in[3], in[4], in[1], in[2], {.training = false})),
      CASE(batch_norm1d, batch_norm(in[0], in[1], in[2], {}, {}, {.training = true})),
      CASE(layer_norm, layer_norm(in[0], {4}, in[1], in[2])),
      CASE(layer_norm2, layer_norm(in[0], {3, 4})),
      CASE(group_norm, group_norm(in[0], 2, in[1], in[2])),
      CASE(rms_norm, rms_norm(in[0], {4}, in[1], 1e-5)),

      CASE(cross_entropy, cross_entropy(in[0], in[1])),
      CASE(cross_entropy_sum, cross_entropy(in[0], in[1], {.reduction = Reduction::sum})),
      CASE(cross_entropy_none, cross_entropy(in[0], in[1], {.reduction = Reduction::none})),
      CASE(cross_entropy_smooth, cross_entropy(in[0], in[1], {.label_smoothing = 0.1})),
      CASE(cross_entropy_weights, cross_entropy(in[0], in[1], {.class_weights = in[2]})),
      CASE(cross_entropy_weights_smooth,
           cross_entropy(in[0], in[1], {.class_weights = in[2], .label_smoothing = 0.2})),
      CASE(cross_entropy_probabilities, cross_entropy(in[0], in[1])),
      CASE(cross_entropy_image, cross_entropy(in[0], in[1])),
      BINARY(nll_loss),
      BINARY(mse_loss),
      BINARY(l1_loss),
      CASE(smooth_l1_loss, smooth_l1_loss(in[0], in[1], 0.5)),
      BINARY(bce_with_logits),

      CASE(zeros, zeros({2, 3})),
      CASE(ones, ones({2, 3}, {.dtype = i64})),
      CASE(full, full({2, 3}, 1.5)),
      CASE(zeros_like, zeros_like(in[0])),
      CASE(ones_like, ones_like(in[0])),
      CASE(full_like, full_like(in[0], 7)),
      CASE(arange, arange(5)),
      CASE(arange_step, arange(1, -2, -0.3)),
      CASE(linspace, linspace(-1, 2, 7)),
      CASE(eye, eye(3, 4)),
      CASE(fill_, fill_(clone(in[0]), 3)),
      CASE(zero_, zero_(clone(in[0]))),
      CASE(clone, clone(in[0])),
      CASE(to_f64, to(in[0], f64)),
      CASE(to_i32, to(in[0], i32)),
      CASE(copy_, copy_(clone(in[0]), in[1])),

      UNARY(logical_not),
      UNARY(isnan),
      UNARY(isinf),
      UNARY(isfinite),
      BINARY(logical_and),
      BINARY(logical_or),
      BINARY(logical_xor),

      CASE(amin, amin(in[0], {0, 2})),
      CASE(amin_ties, amin(in[0], {1})),
      CASE(amax_ties, amax(in[0], {1})),
      CASE(max_dim_ties, max(in[0], 1).values),
      CASE(max_ties, max(in[0])),
      UNARY(min),
      CASE(argmax_all, argmax(in[0])),
      CASE(sum_to, sum_to(in[0], {3, 1})),
      CASE(norm_neg_inf, norm(in[0], -HUGE_VAL, {1})),
      CASE(norm0, norm(in[0], 0, {1})),
      CASE(norm_of_zeros, norm(in[0], 2, {1})),
      CASE(sort_ties, sort(in[0], 1).values),
      CASE(topk_smallest, topk(in[0], 2, 0, false).values),
      CASE(pad_negative, pad(in[0], {-1, 2})),

      CASE(attention_scale_mask,
           scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3], .scale = 0.3})),
      CASE(conv_transpose2d_dilation,
           conv_transpose2d(in[0], in[1], {},
                            {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 3}})),
      CASE(max_pool2d_dilation,
           max_pool2d(in[0], {2, 3}, {.stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 1}})),
      CASE(avg_pool2d_ceil,
           avg_pool2d(in[0], {3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true})),
      CASE(batch_norm_relu,
           batch_norm_relu(in[0], in[1], in[2], {}, {}, {.training = true}, in[3])),
      CASE(batch_norm_relu_eval, batch_norm_relu(in[0], in[3], in[4], in[1], in[2])),
      CASE(batch_norm3d, batch_norm(in[0], in[1], {}, {}, {}, {.training = true, .eps = 1e-3})),
      CASE(group_norm1d, group_norm(in[0], 3, {}, {}, 1e-3)),
      CASE(rms_norm2, rms_norm(in[0], {3, 4}, {}, 1e-2)),
      CASE(cross_entropy_probabilities_smooth,
           cross_entropy(in[0], in[1], {.class_weights = in[2], .label_smoothing = 0.2})),
      CASE(nll_loss_weights,
           nll_loss(in[0], in[1], {.class_weights = in[2], .reduction = Reduction::sum})),
      CASE(mse_loss_none, mse_loss(in[0], in[1], Reduction::none)),
      CASE(l1_loss_sum, l1_loss(in[0], in[1], Reduction::sum)),
      CASE(bce_with_logits_weight, bce_with_logits(in[0], in[1], in[2])),
  };
  return map;
}

// The tensors of one case.
struct Golden {
  std::map<int, Tensor> inputs;
  std::map<int, Tensor> gradients;
  Tensor out;
  Tensor weight;
};

const std::map<std::string, Golden>& golden() {
  static const std::map<std::string, Golden> cases = [] {
    std::map<std::string, Golden> read;
    for (const NamedTensor& entry :
         load_safetensors(std::string(WEFT_TESTS_DIR) + "/golden/ops.safetensors")) {
      const size_t slash = entry.name.find('/');
      Golden& one = read[entry.name.substr(0, slash)];
      const std::string part = entry.name.substr(slash + 1);
      if (part == "out") {
        one.out = entry.tensor;
      } else if (part == "weight") {
        one.weight = entry.tensor;
      } else if (part.starts_with("in")) {
        one.inputs[std::stoi(part.substr(2))] = entry.tensor;
      } else {
        one.gradients[std::stoi(part.substr(4))] = entry.tensor;
      }
    }
    return read;
  }();
  return cases;
}

void expect_close(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  const auto a = actual.to_vector<double>();
  const auto e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], e[i], 2e-6 + 1e-5 * std::abs(e[i])) << what << ", element " << i;
  }
}

class OpsGolden : public testing::TestWithParam<std::string> {};

TEST_P(OpsGolden, AgreesWithPyTorch) {
  const Golden& expected = golden().at(GetParam());
  Inputs inputs;
  for (const auto& [index, tensor] : expected.inputs) {
    inputs.push_back(clone(tensor));
    if (expected.gradients.contains(index)) inputs.back().set_requires_grad();
  }
  const Tensor out = functions().at(GetParam())(inputs);
  expect_close(out, expected.out, "result");
  if (expected.gradients.empty()) return;
  backward(out, expected.weight);
  for (const auto& [index, gradient] : expected.gradients) {
    const Tensor actual = inputs[static_cast<size_t>(index)].grad();
    const bool zero_everywhere = !actual.defined();  // an operator without a gradient, such as sign
    expect_close(zero_everywhere ? zeros(gradient.shape()) : actual, gradient,
                 "gradient of input " + std::to_string(index));
  }
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const auto& [name, function] : functions())
    list.push_back(name);
  return list;
}

INSTANTIATE_TEST_SUITE_P(All, OpsGolden, testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

TEST(OpsGolden, HasAFunctionForEveryCase) {
  for (const auto& [name, one] : golden())
    EXPECT_TRUE(functions().contains(name)) << name;
  EXPECT_EQ(golden().size(), functions().size());
}

}  // namespace
}  // namespace weft
