// The names of residual networks and the first losses of training them, against PyTorch from the
// same weights and batches (make_resnet.py).
#include "core/safetensors.h"
#include "tests/support/golden.h"
#include "tests/support/noise.h"
#include "weft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using test::noise;

constexpr int64_t kResNetBatch = 8;
constexpr int64_t kClasses = 10;
const std::string kResNetFile = std::string(WEFT_TESTS_DIR) + "/golden/resnet.safetensors";

void fill_resnet(nn::Module& model) {
  auto named = model.named_parameters();
  std::sort(named.begin(), named.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const bool bottleneck = std::any_of(
      named.begin(), named.end(), [](const auto& one) { return one.name.ends_with("bn3.weight"); });
  const NoGrad no_grad;
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& [name, parameter] = named[i];
    Tensor values = noise(1000 + i, parameter.numel());
    if (parameter.dims() == 4) {
      const auto fan_out = static_cast<double>(nn::init::fans(parameter.shape()).out);
      values = values * static_cast<float>(std::sqrt(24 / fan_out));
    } else if (parameter.dims() == 2) {
      values = values * static_cast<float>(2 / std::sqrt(static_cast<double>(parameter.size(1))));
    } else {
      values = values * 0.2f + (name.ends_with("weight") ? 1.0f : 0.0f);
      if (name.ends_with(bottleneck ? "bn3.weight" : "bn2.weight")) values = values * 0.125f;
    }
    copy_(parameter, reshape(values, parameter.shape()));
  }
}

struct ResNetSample {
  Tensor images;
  Tensor labels;
};

ResNetSample resnet_batch(int step, int64_t side) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kResNetBatch; ++i)
    labels.push_back(i * (step % 2 != 0 ? 7 : 3) % kClasses);
  const Tensor targets = from_values(labels);
  const int64_t size = 3 * side * side;
  const Tensor classes =
      index_select(reshape(noise(7, kClasses * size), {kClasses, size}), 0, targets);
  const Tensor own = reshape(noise(static_cast<uint64_t>(10000 + step), kResNetBatch * size),
                             {kResNetBatch, size});
  return {reshape(classes * 2.0 + own * 2.0, {kResNetBatch, 3, side, side}), targets};
}

// The losses of the first steps; in f64 on smaller images and at a usual rate (make_resnet.py).
std::vector<double> train(const std::string& name, DType dtype, int64_t steps) {
  const auto model = nn::models::make_resnet(name, {.classes = kClasses});
  fill_resnet(*model);
  model->to(dtype, dtype == f64);
  const bool small = name == "resnet20";
  const double lr = dtype == f64 ? 0.05 : small ? 1e-3 : 1e-4;
  optim::Sgd optimizer(model->parameters(), {.lr = lr, .momentum = 0.9, .weight_decay = 1e-4});
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const ResNetSample sample =
        resnet_batch(static_cast<int>(step), small || dtype == f64 ? 32 : 48);
    optimizer.zero_grad();
    const Tensor loss =
        cross_entropy((*model)(to(sample.images, dtype)), sample.labels, {.label_smoothing = 0.1});
    backward(loss);
    optimizer.step();
    losses.push_back(loss.item());
  }
  return losses;
}

class ResNetGolden : public testing::TestWithParam<std::string> {};

TEST_P(ResNetGolden, NamesAndSizesAreThoseOfTorchvision) {
  const auto model = nn::models::make_resnet(GetParam(), {.classes = kClasses});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model->state_dict())
    names.push_back(name + ":" + std::to_string(tensor.numel()));
  std::vector<std::string> expected;
  for (const auto& [key, value] : load_safetensors_metadata(kResNetFile)) {
    if (key != GetParam()) continue;
    for (size_t at = 0; at < value.size();) {
      const size_t end = std::min(value.find(' ', at), value.size());
      expected.push_back(value.substr(at, end - at));
      at = end + 1;
    }
  }
  std::sort(names.begin(), names.end());
  std::sort(expected.begin(), expected.end());
  ASSERT_GT(expected.size(), 100U);
  EXPECT_EQ(names, expected);
}

TEST_P(ResNetGolden, LossesAgreeWithPyTorch) {
  const Tensor expected = test::golden_tensor(kResNetFile, GetParam());
  ASSERT_TRUE(expected.defined());
  ASSERT_EQ(expected.numel(), 20);
  const std::vector<double> losses = train(GetParam(), f32, expected.numel());
  for (size_t step = 0; step < losses.size(); ++step) {
    const auto wanted = static_cast<double>(expected.data<float>()[step]);
    EXPECT_NEAR(losses[step], wanted, 1e-3 * wanted) << step;
  }
}

TEST_P(ResNetGolden, LossesInF64AgreeWithPyTorch) {
  const Tensor expected = test::golden_tensor(kResNetFile, GetParam() + "_f64");
  ASSERT_TRUE(expected.defined());
  ASSERT_EQ(expected.numel(), 3);
  const std::vector<double> losses = train(GetParam(), f64, expected.numel());
  for (size_t step = 0; step < losses.size(); ++step) {
    const double wanted = expected.data<double>()[step];
    EXPECT_NEAR(losses[step], wanted, 1e-8 * wanted) << step;
  }
}

// What eight bits of mantissa leave of a loss.
TEST_P(ResNetGolden, FirstLossInBf16IsThatOfPyTorchRounded) {
  const Tensor expected = test::golden_tensor(kResNetFile, GetParam());
  ASSERT_TRUE(expected.defined());
  EXPECT_NEAR(train(GetParam(), bf16, 1)[0], static_cast<double>(expected.data<float>()[0]), 0.05);
}

INSTANTIATE_TEST_SUITE_P(All, ResNetGolden, testing::Values("resnet18", "resnet50", "resnet20"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace weft
