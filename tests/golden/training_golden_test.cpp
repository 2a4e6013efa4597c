// The first losses of training the mnist models and a small gpt, against PyTorch from the same
// weights and batches (make_training.py).
#include "core/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/noise.h"
#include "weft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace weft {
namespace {

using test::noise;

constexpr int64_t kBatch = 32;
const std::string kTrainingFile = std::string(WEFT_TESTS_DIR) + "/golden/training.safetensors";

void fill(nn::Module& model) {
  auto named = model.named_parameters();
  std::sort(named.begin(), named.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const NoGrad no_grad;
  for (size_t i = 0; i < named.size(); ++i) {
    const Tensor& parameter = named[i].tensor;
    const bool matrix = parameter.dims() > 1;
    const double fan_in = matrix ? static_cast<double>(parameter.numel() / parameter.size(0)) : 1;
    const float scale = static_cast<float>(matrix ? 2 / std::sqrt(fan_in) : 0.1);
    copy_(parameter, reshape(noise(1000 + i, parameter.numel()) * scale, parameter.shape()));
  }
}

struct Sample {
  Tensor images;
  Tensor labels;
};

Sample batch(int step) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kBatch; ++i)
    labels.push_back(i * (step % 2 != 0 ? 7 : 3) % 10);
  const Tensor targets = from_values(labels);
  const Tensor classes = index_select(reshape(noise(7, 7840), {10, 784}), 0, targets);
  const Tensor images =
      classes +
      reshape(noise(static_cast<uint64_t>(10000 + step), kBatch * 784), {kBatch, 784}) * 4.0;
  return {reshape(images, {kBatch, 1, 28, 28}), targets};
}

class TrainingGolden : public testing::TestWithParam<std::string> {};

TEST_P(TrainingGolden, LossesAgreeWithPyTorch) {
  const std::string name = GetParam();
  const std::string model_name = name.substr(0, 3);
  const auto model = nn::models::make_mnist_model(model_name);
  fill(*model);
  std::unique_ptr<optim::Optimizer> optimizer;
  if (name.ends_with("sgd")) {
    optimizer = std::make_unique<optim::Sgd>(
        model->parameters(),
        optim::SgdOptions{
            .lr = model_name == "mlp" ? 0.02 : 0.005, .momentum = 0.9, .weight_decay = 1e-4});
  } else {
    optimizer = std::make_unique<optim::AdamW>(
        model->parameters(),
        optim::AdamOptions{.lr = model_name == "mlp" ? 1e-3 : 5e-5, .weight_decay = 0.01});
  }
  const Tensor expected = test::golden_tensor(kTrainingFile, name);
  ASSERT_TRUE(expected.defined());
  for (int step = 0; step < expected.numel(); ++step) {
    const Sample sample = batch(step);
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(
        (*model)(model_name == "mlp" ? flatten(sample.images, 1) : sample.images), sample.labels);
    backward(loss);
    optimizer->step();
    const double wanted = static_cast<double>(expected.data<float>()[step]);
    ASSERT_NEAR(loss.item(), wanted, 1e-4 * wanted) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainingGolden,
                         testing::Values("mlp_sgd", "mlp_adamw", "cnn_sgd", "cnn_adamw"),
                         [](const auto& one) { return one.param; });

constexpr int64_t kVocabulary = 19;
constexpr int64_t kContext = 12;

// Runs of numbers that rise by 1, 2 or 3, with a few slips: [8, kContext + 1].
Tensor sentences(int step) {
  constexpr int64_t kRows = 8;
  const Tensor draws = noise(static_cast<uint64_t>(20000 + step), kRows * (kContext + 2));
  const Tensor ids = empty({kRows, kContext + 1}, {.dtype = i64});
  for (int64_t row = 0; row < kRows; ++row) {
    const float* draw = draws.data<float>() + row * (kContext + 2);
    const auto start = static_cast<int64_t>((draw[0] + 0.5f) * static_cast<float>(kVocabulary));
    const auto stride = static_cast<int64_t>((draw[1] + 0.5f) * 3.0f) + 1;
    for (int64_t i = 0; i <= kContext; ++i) {
      const bool slip = draw[i + 1] + 0.5f < 0.05f;
      ids.data<int64_t>()[row * (kContext + 1) + i] = slip ? 3 : (start + stride * i) % kVocabulary;
    }
  }
  return ids;
}

class GptGolden : public testing::TestWithParam<bool> {};

TEST_P(GptGolden, LossesAgreeWithPyTorch) {
  const bool tied = GetParam();
  nn::models::Gpt model({.vocabulary = kVocabulary,
                         .context = kContext,
                         .layers = 2,
                         .width = 24,
                         .heads = 3,
                         .tied = tied});
  fill(model);
  for (const auto& [name, parameter] : model.named_parameters()) {
    const NoGrad no_grad;
    if (name.find("norm") != std::string::npos && name.ends_with(".weight"))
      copy_(parameter, parameter + 1.0);
  }
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3, .weight_decay = 0.1});
  const Tensor expected = test::golden_tensor(kTrainingFile, tied ? "gpt_tied" : "gpt_untied");
  ASSERT_TRUE(expected.defined());
  for (int step = 0; step < expected.numel(); ++step) {
    const Tensor ids = sentences(step);
    const Tensor targets = contiguous(narrow(ids, 1, 1, kContext));
    optimizer.zero_grad();
    const Tensor loss =
        cross_entropy(flatten(model(narrow(ids, 1, 0, kContext)), 0, 1), flatten(targets));
    backward(loss);
    optim::clip_grad_norm(model.parameters(), 1.0);
    optimizer.step();
    const double wanted = static_cast<double>(expected.data<float>()[step]);
    ASSERT_NEAR(loss.item(), wanted, 1e-4 * wanted) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GptGolden, testing::Bool(),
                         [](const auto& one) { return one.param ? "tied" : "untied"; });

}  // namespace
}  // namespace weft
