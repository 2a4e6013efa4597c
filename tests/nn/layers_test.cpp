// Layers: what they compute, how they start, how they name their parameters; gradients of
// attention.
#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "autograd/recompute.h"
#include "nn/models/mnist.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

namespace weft {
namespace {

using test::error_of;

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};
Moments moments(const Tensor& tensor) {
  const auto values = tensor.to_vector<double>();
  Moments m{0, 0, values[0], values[0]};
  for (const double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.low = std::min(m.low, v);
    m.high = std::max(m.high, v);
  }
  for (const double v : values)
    m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

void expect_uniform(const Tensor& tensor, double bound) {
  const Moments m = moments(tensor);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 0.02 * bound);
  EXPECT_NEAR(m.mean, 0, 0.03 * bound);
  EXPECT_TRUE(m.low >= -bound && m.low < -0.99 * bound) << m.low;
  EXPECT_TRUE(m.high <= bound && m.high > 0.99 * bound) << m.high;
}

void expect_normal(const Tensor& tensor, double deviation) {
  const Moments m = moments(tensor);
  EXPECT_NEAR(m.deviation, deviation, 0.02 * deviation);
  EXPECT_NEAR(m.mean, 0, 0.02 * deviation);
  EXPECT_GT(m.high, 3 * deviation);
}

// ---- initialisers ----

TEST(Init, Fans) {
  EXPECT_EQ(nn::init::fans({20, 30}).in, 30);
  EXPECT_EQ(nn::init::fans({20, 30}).out, 20);
  EXPECT_EQ(nn::init::fans({20, 30, 3, 5}).in, 450);
  EXPECT_EQ(nn::init::fans({20, 30, 3, 5}).out, 300);
  EXPECT_NE(error_of([] { nn::init::fans({20}); }).find("at least 2 dims"), std::string::npos);
}

TEST(Init, Statistics) {
  manual_seed(1);
  const Tensor w =
      empty({200, 300}).set_requires_grad();  // a leaf: initialisers need no NoGrad around them
  expect_uniform(nn::init::xavier_uniform_(w, 2), 2 * std::sqrt(6.0 / 500));
  expect_normal(nn::init::xavier_normal_(w), std::sqrt(2.0 / 500));
  expect_uniform(nn::init::kaiming_uniform_(w), std::sqrt(6.0 / 300));
  expect_uniform(nn::init::kaiming_uniform_(w, 0, nn::init::Fan::out), std::sqrt(6.0 / 200));
  expect_normal(nn::init::kaiming_normal_(w, std::sqrt(5.0)), std::sqrt(2.0 / (6 * 300)));
  expect_uniform(nn::init::uniform_(w, -2, 2), 2);
  expect_normal(nn::init::normal_(w, 0, 3), 3);
  const Moments cut = moments(nn::init::trunc_normal_(w, 0, 1, -1, 0.5));
  EXPECT_TRUE(cut.low >= -1 && cut.high <= 0.5);
  EXPECT_EQ(moments(nn::init::constant_(w, 7)).low, 7);
  EXPECT_EQ(moments(nn::init::ones_(w)).low, 1);
  EXPECT_EQ(moments(nn::init::zeros_(w)).high, 0);
}

TEST(Init, SameSeedSameValues) {
  const auto draw = [] {
    manual_seed(7);
    return nn::Linear(5, 6).weight.to_vector<float>();
  };
  EXPECT_EQ(draw(), draw());
  const auto first = draw();
  EXPECT_NE(nn::Linear(5, 6).weight.to_vector<float>(), first);
}

TEST(Init, OrthogonalVectors) {
  for (const Shape& shape :
       {Shape{5, 12}, Shape{12, 5}, Shape{6, 2, 3}, Shape{9, 2, 2}, Shape{1, 1}}) {
    const Tensor w = nn::init::orthogonal_(empty(shape, {.dtype = f64}), 2);
    const Tensor flat = reshape(w, {shape[0], -1});
    const bool tall = flat.size(0) > flat.size(1);
    const Tensor square =
        tall ? matmul(transpose(flat, 0, 1), flat) : matmul(flat, transpose(flat, 0, 1));
    test::expect_near(square, eye(square.size(0), -1, {.dtype = f64}) * 4.0, 1e-12,
                      to_string(shape));
  }
}

// ---- how layers start ----

TEST(Layers, StartAsInPyTorch) {
  manual_seed(2);
  const nn::Linear linear_layer(400, 300);
  expect_uniform(linear_layer.weight, 1 / std::sqrt(400.0));
  EXPECT_LE(moments(linear_layer.bias).high, 1 / std::sqrt(400.0));
  EXPECT_GT(moments(linear_layer.bias).deviation, 0.5 / std::sqrt(1200.0));
  const nn::Conv2d conv(64, 100, 3, {.groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{100, 32, 3, 3}));
  expect_uniform(conv.weight, 1 / std::sqrt(32.0 * 9));
  const nn::ConvTranspose2d back(30, 40, {2, 3});
  EXPECT_EQ(back.weight.shape(), (Shape{30, 40, 2, 3}));
  expect_uniform(back.weight, 1 / std::sqrt(40.0 * 6));
  expect_normal(nn::Embedding(200, 300).weight, 1);
  const nn::BatchNorm2d norm(5);
  EXPECT_EQ(norm.weight.to_vector<float>(), std::vector<float>(5, 1));
  EXPECT_EQ(norm.bias.to_vector<float>(), std::vector<float>(5, 0));
  EXPECT_EQ(norm.running_mean.to_vector<float>(), std::vector<float>(5, 0));
  EXPECT_EQ(norm.running_var.to_vector<float>(), std::vector<float>(5, 1));
  EXPECT_FALSE(nn::Linear(2, 2, false).bias.defined());
  EXPECT_EQ(nn::Linear(2, 2, false).named_parameters().size(), 1u);
}

// ---- what layers compute ----

TEST(Layers, BatchNormThroughRelu) {
  manual_seed(3);
  nn::BatchNorm2d apart(6);
  nn::BatchNorm2d fused(6);
  const Tensor x = randn({3, 6, 4, 4});
  const Tensor shortcut = randn({3, 6, 4, 4});
  for (const bool training : {true, false}) {
    apart.train(training);
    fused.train(training);
    test::expect_near(fused.then_relu(x, shortcut), relu(apart(x) + shortcut), 1e-5);
    test::expect_near(fused.then_relu(x), relu(apart(x)), 1e-5);
  }
  test::expect_near(fused.running_mean, apart.running_mean, 1e-6);
  test::expect_near(fused.running_var, apart.running_var, 1e-6);
  EXPECT_EQ(fused.num_batches_tracked.item_int(), 2);
  // Hooks run as in a call.
  Tensor seen;
  fused.add_forward_pre_hook([&](nn::Module&, const Tensor& input) { return input * 2.0; });
  fused.add_forward_hook([&](nn::Module&, const Tensor&, const Tensor& output) {
    seen = output;
    return Tensor();
  });
  const Tensor out = fused.then_relu(x);
  EXPECT_TRUE(out.is_same(seen));
  test::expect_near(out, relu(apart(x * 2.0)), 1e-5);
  EXPECT_NE(error_of([&] {
              fused.then_relu(randn({3, 6}));
            }).find("[N, C, H, W]"),
            std::string::npos);
}

TEST(Layers, ComputeTheirOperators) {
  const Tensor images = test::normal({2, 4, 6, 5}, 1, f32);
  nn::Conv2d conv(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}});
  test::expect_near(conv(images),
                    conv2d(images, conv.weight, conv.bias, {.stride = {2, 1}, .padding = {1, 0}}),
                    0);
  nn::ConvTranspose2d back(4, 2, 3, {.stride = {2, 2}, .padding = {1, 1}, .output_padding = {1, 1}},
                           false);
  EXPECT_EQ(back(images).shape(), (Shape{2, 2, 12, 10}));
  nn::Linear layer(5, 3);
  test::expect_near(layer(images), linear(images, layer.weight, layer.bias), 0);
  nn::LayerNorm layer_normed({6, 5}, 1e-3);
  test::expect_near(layer_normed(images), layer_norm(images, {6, 5}, {}, {}, 1e-3), 1e-6);
  nn::RmsNorm rms(5);
  test::expect_near(rms(images), rms_norm(images, {5}), 1e-6);
  nn::GroupNorm group(2, 4);
  test::expect_near(group(images), group_norm(images, 2), 1e-6);
  test::expect_near(nn::MaxPool2d(2)(images), max_pool2d(images, {2, 2}), 0);
  test::expect_near(nn::AvgPool2d({2, 1}, {.stride = {1, 1}})(images),
                    avg_pool2d(images, {2, 1}, {.stride = {1, 1}}), 0);
  test::expect_near(nn::AdaptiveAvgPool2d(1)(images), mean(images, {2, 3}, true), 1e-6);
  EXPECT_EQ(nn::Flatten()(images).shape(), (Shape{2, 120}));
  EXPECT_EQ(nn::Flatten(0, 1)(images).shape(), (Shape{8, 6, 5}));
  EXPECT_TRUE(nn::Identity()(images).is_same(images));
  nn::Embedding table(5, 3);
  EXPECT_EQ(table(from_values(std::vector<int64_t>{4, 0, 1, 1}, {2, 2})).shape(), (Shape{2, 2, 3}));
}

TEST(Layers, Activations) {
  const Tensor x = from_values(std::vector<double>{-2, -0.5, 0, 1.5});
  const auto check = [&](nn::Module&& layer, double (*f)(double)) {
    const auto values = layer(x).to_vector<double>();
    const auto in = x.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i)
      EXPECT_NEAR(values[i], f(in[i]), 1e-9) << layer.type() << " at " << in[i];
  };
  check(nn::Relu(), [](double v) { return v > 0 ? v : 0; });
  check(nn::LeakyRelu(0.3), [](double v) { return v > 0 ? v : 0.3 * v; });
  check(nn::Elu(0.5), [](double v) { return v > 0 ? v : 0.5 * std::expm1(v); });
  check(nn::Gelu(), [](double v) { return v / 2 * std::erfc(-v / std::sqrt(2.0)); });
  check(nn::Gelu(true), [](double v) {
    return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
  check(nn::Silu(), [](double v) { return v / (1 + std::exp(-v)); });
  check(nn::Sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  check(nn::Tanh(), [](double v) { return std::tanh(v); });
  check(nn::Softplus(2), [](double v) { return std::log1p(std::exp(2 * v)) / 2; });
}

TEST(Layers, DropoutDropsInTrainingOnly) {
  nn::Dropout drop(0.25);
  const Tensor x = ones({10000});
  const Tensor y = drop(x);
  EXPECT_NEAR(mean(y).item(), 1, 0.03);
  EXPECT_NEAR(moments(y).high, 1 / 0.75, 1e-6);
  EXPECT_EQ(moments(y).low, 0);
  drop.eval();
  EXPECT_TRUE(drop(x).is_same(x));
  EXPECT_NE(error_of([] { nn::Dropout bad(1.5); }).find("[0, 1]"), std::string::npos);
}

TEST(Layers, BatchNormCountsABatchOnceThatIsRecomputed) {
  const Tensor x = test::leaf({4, 3, 2, 2});
  const auto state = [&](bool again, bool then_relu) {
    nn::BatchNorm2d norm(3);
    const auto f = [&](std::span<const Tensor> in) {
      return then_relu ? norm.then_relu(in[0]) : norm(in[0]);
    };
    sum(again ? recompute(f, std::span(&x, 1)) : f(std::span(&x, 1))).backward();
    std::vector<double> values = norm.running_mean.to_vector<double>();
    for (const Tensor& more : {norm.running_var, to(norm.num_batches_tracked, f32)})
      std::ranges::copy(more.to_vector<double>(), std::back_inserter(values));
    return values;
  };
  for (const bool then_relu : {false, true})
    EXPECT_EQ(state(true, then_relu), state(false, then_relu));
}

TEST(Layers, BatchNormTracksStatistics) {
  nn::BatchNorm1d norm(3, {.momentum = 0.25});
  const Tensor x = test::normal({50, 3}, 1, f32) * 2.0 + 5.0;
  const Tensor y = norm(x);
  test::expect_near(mean(y, {0}), zeros({3}), 1e-5);
  test::expect_near(norm.running_mean, mean(x, {0}) * 0.25, 1e-5);
  test::expect_near(norm.running_var, var(x, {0}) * 0.25 + 0.75, 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.item_int(), 1);
  norm.eval();
  test::expect_near(norm(x), (x - norm.running_mean) / sqrt(norm.running_var + 1e-5), 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.item_int(), 1);
  nn::BatchNorm1d plain(3, {.affine = false, .track_running_stats = false});
  plain.eval();
  test::expect_near(mean(plain(x), {0}), zeros({3}), 1e-5);
  EXPECT_TRUE(plain.state_dict().empty());
  EXPECT_NE(error_of([&] { nn::BatchNorm2d(3)(x); }).find("[N, C, H, W]"), std::string::npos);
  EXPECT_NE(error_of([&] {
              norm(test::normal({2, 3, 4, 5}, 1, f32));
            }).find("[N, C, L]"),
            std::string::npos);
}

TEST(Layers, RefuseChannelsThatGroupsDoNotDivide) {
  for (const auto& bad : std::vector<std::function<void()>>{
           [] { nn::Conv2d(3, 4, 3, {.groups = 2}); }, [] { nn::Conv2d(4, 3, 3, {.groups = 2}); },
           [] { nn::ConvTranspose2d(4, 3, 3, {.groups = 2}); }, [] { nn::Conv2d(3, 4, Shape{3}); },
           [] { nn::Conv2d(3, 4, 0); }, [] { nn::Conv2d(3, 4, 3, {.groups = 0}); },
           [] { nn::GroupNorm(2, 3); }, [] { nn::MultiheadAttention(6, 4); },
           [] { nn::Linear(-1, 3); }}) {
    EXPECT_NE(error_of(bad).find("expected"), std::string::npos);
  }
}

TEST(Sequential, RunsAndNamesByPosition) {
  nn::Sequential net;
  net.add<nn::Linear>(4, 8).add<nn::Relu>().add<nn::Linear>(8, 2, false);
  EXPECT_EQ(net.size(), 3);
  EXPECT_EQ(net[1].type(), "Relu");
  EXPECT_EQ(net.named_parameters()[2].name, "2.weight");
  const Tensor x = test::normal({3, 4}, 1, f32);
  test::expect_near(net(x), net[2](relu(net[0](x))), 0);
  EXPECT_NE(error_of([&] { net[3]; }).find("[0, 3)"), std::string::npos);
  EXPECT_NE(error_of([&] { net.append(nullptr); }).find("got none"), std::string::npos);
}

TEST(Losses, CarryTheirOptions) {
  const Tensor x = test::normal({4, 3}, 1, f32);
  const Tensor y = from_values(std::vector<int64_t>{0, 2, 1, 1});
  EXPECT_EQ(nn::CrossEntropyLoss{{.label_smoothing = 0.1}}(x, y).item(),
            cross_entropy(x, y, {.label_smoothing = 0.1}).item());
  EXPECT_EQ(nn::NllLoss{}(x, y).item(), nll_loss(x, y).item());
  EXPECT_EQ(nn::MseLoss{Reduction::sum}(x, x * 2.0).item(),
            mse_loss(x, x * 2.0, Reduction::sum).item());
  EXPECT_EQ(nn::L1Loss{}(x, x * 2.0).item(), l1_loss(x, x * 2.0).item());
  EXPECT_EQ((nn::SmoothL1Loss{.beta = 2}(x, x * 2.0).item()), smooth_l1_loss(x, x * 2.0, 2).item());
  EXPECT_EQ(nn::BceWithLogitsLoss{}(x, sigmoid(x)).item(), bce_with_logits(x, sigmoid(x)).item());
}

// ---- attention ----

// One head at a time, by loops over positions.
Tensor naive_attention(nn::MultiheadAttention& layer, const Tensor& x, int64_t heads, bool causal) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2), each = width / heads;
  const auto qkv = layer.qkv(x).to_vector<double>();
  const auto at = [&](int64_t n, int64_t t, int64_t which, int64_t h, int64_t i) {
    return qkv[static_cast<size_t>(((n * length + t) * 3 + which) * width + h * each + i)];
  };
  std::vector<double> merged(static_cast<size_t>(x.numel()));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < length; ++t) {
        std::vector<double> weights;
        for (int64_t s = 0; s < (causal ? t + 1 : length); ++s) {
          double score = 0;
          for (int64_t i = 0; i < each; ++i)
            score += at(n, t, 0, h, i) * at(n, s, 1, h, i);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(each))));
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (int64_t i = 0; i < each; ++i)
          for (size_t s = 0; s < weights.size(); ++s)
            merged[static_cast<size_t>((n * length + t) * width + h * each + i)] +=
                weights[s] / sum * at(n, static_cast<int64_t>(s), 2, h, i);
      }
  return layer.out(from_values(merged, x.shape()));
}

TEST(Attention, AgreesWithLoops) {
  for (const bool causal : {false, true}) {
    nn::MultiheadAttention layer(6, 3, {.causal = causal});
    layer.to(f64);
    const Tensor x = test::normal({2, 5, 6}, 1);
    test::expect_near(layer(x), naive_attention(layer, x, 3, causal), 1e-12);
    EXPECT_NE(error_of([&] {
                layer(test::normal({2, 5, 7}));
              }).find("[N, T, 6]"),
              std::string::npos);
  }
}

TEST(Attention, MaskHidesPositions) {
  nn::MultiheadAttention layer(4, 2), causal(4, 2, {.causal = true});
  causal.load_state_dict(layer.state_dict());
  const Tensor x = test::normal({1, 3, 4}, 1, f32);
  const Tensor lower = ge(reshape(arange(3), {3, 1}), reshape(arange(3), {1, 3}));
  test::expect_near(layer.forward(x, lower), causal(x), 1e-6);
  const Tensor scores = where(lower, zeros({3, 3}), full({3, 3}, -INFINITY));
  test::expect_near(layer.forward(x, scores), causal(x), 1e-6);
}

// Swaps `values` into a module's parameters, for gradcheck.
class With {
 public:
  With(std::vector<Tensor*> members, const std::vector<Tensor>& values)
      : members_(std::move(members)) {
    for (size_t i = 0; i < members_.size(); ++i) {
      before_.push_back(*members_[i]);
      *members_[i] = values[i];
    }
  }
  ~With() {
    for (size_t i = 0; i < members_.size(); ++i)
      *members_[i] = before_[i];
  }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  std::vector<Tensor*> members_;
  std::vector<Tensor> before_;
};

TEST(Attention, Gradients) {
  nn::MultiheadAttention layer(4, 2, {.causal = true});
  layer.to(f64);
  const std::vector<Tensor*> members = {&layer.qkv.weight, &layer.qkv.bias, &layer.out.weight,
                                        &layer.out.bias};
  std::vector<Tensor> inputs;
  for (const Tensor* member : members)
    inputs.push_back(*member);
  inputs.push_back(test::leaf({2, 3, 4}));
  EXPECT_EQ(gradcheck(
                [&](const std::vector<Tensor>& in) {
                  const With with(members, in);
                  return layer(in.back());
                },
                inputs),
            "");
}

TEST(TransformerBlock, Gradients) {
  nn::TransformerBlock block(4, 2, {.causal = true, .hidden = 6});
  block.to(f64);
  std::vector<Tensor*> members = {&block.norm1.weight, &block.attention.qkv.weight,
                                  &block.norm2.bias, &block.fc1.weight, &block.fc2.bias};
  std::vector<Tensor> inputs;
  for (const Tensor* member : members)
    inputs.push_back(*member);
  inputs.push_back(test::strided(test::leaf({2, 3, 4})));
  EXPECT_EQ(gradcheck(
                [&](const std::vector<Tensor>& in) {
                  const With with(members, in);
                  return block(in.back());
                },
                inputs),
            "");
}

TEST(TransformerBlock, IsPreNormWithResiduals) {
  nn::TransformerBlock block(4, 2, {.dropout = 0.3});
  EXPECT_EQ(block.fc1.weight.shape(), (Shape{16, 4}));
  block.eval();
  const Tensor x = test::normal({2, 3, 4}, 1, f32);
  const Tensor y = x + block.attention(block.norm1(x));
  test::expect_near(block(x), y + block.fc2(gelu(block.fc1(block.norm2(y)))), 1e-6);
  const Tensor lower = ge(reshape(arange(3), {3, 1}), reshape(arange(3), {1, 3}));
  EXPECT_NE(block.forward(x, lower).to_vector<float>(), block(x).to_vector<float>());
  block.train();
  EXPECT_NE(block(x).to_vector<float>(), block(x).to_vector<float>());
}

// ---- models ----

TEST(Mnist, NamesAndShapes) {
  const auto cnn = nn::models::make_mnist_model("cnn");
  std::vector<std::string> names;
  for (const auto& entry : cnn->named_parameters())
    names.push_back(entry.name + to_string(entry.tensor.shape()));
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight[32, 1, 3, 3]", "conv1.bias[32]",
                                             "conv2.weight[64, 32, 3, 3]", "conv2.bias[64]",
                                             "fc1.weight[128, 3136]", "fc1.bias[128]",
                                             "fc2.weight[10, 128]", "fc2.bias[10]"}));
  EXPECT_EQ(cnn->parameter_count(), 421642);
  EXPECT_EQ((*cnn)(zeros({2, 1, 28, 28})).shape(), (Shape{2, 10}));
  const auto mlp = nn::models::make_mnist_model("mlp");
  EXPECT_EQ(mlp->parameter_count(), 101770);
  EXPECT_EQ((*mlp)(zeros({2, 1, 28, 28})).shape(), (Shape{2, 10}));
  EXPECT_EQ((*mlp)(zeros({0, 784})).shape(), (Shape{0, 10}));
  EXPECT_NE(error_of([] { nn::models::make_mnist_model("rnn"); }).find("mlp, cnn or norm_cnn"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
