// Residual networks: sizes as published, shapes, initial values.
#include "nn/models/resnet.h"

#include "tests/support/tensors.h"
#include "weft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace weft {
namespace {

using nn::models::make_resnet;

// torchvision's documentation of each; for the small ones, with padded shortcuts, 0.27, 0.46, 0.66,
// 0.85 and 1.7 M in table 6 of the paper.
TEST(ResNet, ParametersAreAsManyAsPublished) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"resnet18", 11'689'512},          {"resnet34", 21'797'672},  {"resnet50", 25'557'032},
      {"resnet101", 44'549'160},         {"resnet152", 60'192'808}, {"wide_resnet50_2", 68'883'240},
      {"wide_resnet101_2", 126'886'696},
  };
  const std::vector<std::pair<std::string, int64_t>> small = {
      {"resnet20", 269'722},
      {"resnet32", 464'154},
      {"resnet44", 658'586},
      {"resnet56", 853'018},
      {"resnet110", 1'727'962},
      // Counted by hand.
      {"wide_resnet14_2", 685'994},
      {"wide_resnet20_2", 1'073'962},
      {"wide_resnet14_4", 2'735'946},
  };
  EXPECT_EQ(nn::models::resnet_names().size(), published.size() + small.size());
  const nn::Deferred deferred;  // shapes alone
  for (const auto& [name, count] : published)
    EXPECT_EQ(make_resnet(name)->parameter_count(), count) << name;
  for (const auto& [name, count] : small)
    EXPECT_EQ(make_resnet(name, {.classes = 10})->parameter_count(), count) << name;
}

// In units of 10^9: torchvision's documentation; 4.1 for ResNet-50.
TEST(ResNet, MultiplyAddsAreAsManyAsPublished) {
  const std::vector<std::pair<std::string, double>> published = {
      {"resnet18", 1.814}, {"resnet34", 3.664}, {"resnet50", 4.089}, {"wide_resnet50_2", 11.398}};
  for (const auto& [name, count] : published) {
    const double counted = static_cast<double>(make_resnet(name)->multiply_adds({1, 3, 224, 224}));
    EXPECT_NEAR(counted * 1e-9, count, 5e-4) << name;
  }
  const auto small = make_resnet("resnet20", {.classes = 10});
  EXPECT_EQ(small->multiply_adds({1, 3, 32, 32}), 40'551'040);
  EXPECT_EQ(small->multiply_adds({2, 3, 32, 32}), 2 * 40'551'040);
}

TEST(ResNet, UserMakesOneByValue) {
  manual_seed(3);
  auto model = nn::models::resnet18(7);
  EXPECT_EQ(model(test::uniform({2, 3, 40, 40}, -1, 1, 1, f32)).shape(), Shape({2, 7}));
  EXPECT_EQ(model.layer1[0].type(), "BasicBlock");
}

TEST(ResNet, TakesImagesOfAnyChannelsAndSize) {
  const auto model = make_resnet("resnet20", {.channels = 1, .classes = 4});
  for (const int64_t side : {28, 32, 33})
    EXPECT_EQ((*model)(ones({2, 1, side, side})).shape(), Shape({2, 4}));
  EXPECT_THROW((*model)(ones({2, 3, 28, 28})), Error);
  EXPECT_THROW(make_resnet("resnet19"), Error);
  auto plan = nn::models::resnet_plan("resnet20");
  plan.bottleneck = true;
  EXPECT_THROW(make_ref<nn::models::ResNet>(plan), Error);
  plan = nn::models::resnet_plan("resnet18");
  plan.blocks.pop_back();
  EXPECT_THROW(make_ref<nn::models::ResNet>(plan), Error);
}

// The stride of a bottleneck is in its 3×3 (v1.5).
TEST(ResNet, BottlenecksStrideInTheMiddle) {
  const nn::Deferred deferred;
  const auto model = make_resnet("resnet50");
  const auto& block = dynamic_cast<nn::models::Bottleneck&>(model->layer2[0]);
  EXPECT_EQ(block.conv1.options().stride, Shape({1, 1}));
  EXPECT_EQ(block.conv2.options().stride, Shape({2, 2}));
}

TEST(ResNet, StartsFromHesVarianceAndGainsOfOneOrZero) {
  manual_seed(5);
  const auto model = make_resnet("resnet18", {.zero_init_residual = true});
  const Tensor weight = model->layer4[1].parameters()[0];
  const double fan_out = static_cast<double>(nn::init::fans(weight.shape()).out);
  EXPECT_NEAR(stddev(weight).item(), std::sqrt(2 / fan_out), 0.02 * std::sqrt(2 / fan_out));
  EXPECT_NEAR(mean(weight).item(), 0, 1e-3);
  const auto& block = dynamic_cast<nn::models::BasicBlock&>(model->layer3[0]);
  EXPECT_EQ(sum(block.bn1.weight).item(), 256);
  EXPECT_EQ(sum(abs(block.bn2.weight)).item(), 0);
  const auto usual = make_resnet("resnet18");
  EXPECT_EQ(sum(dynamic_cast<nn::models::BasicBlock&>(usual->layer3[0]).bn2.weight).item(), 256);
  const auto deep = make_resnet("resnet50", {.zero_init_residual = true});
  EXPECT_EQ(sum(abs(dynamic_cast<nn::models::Bottleneck&>(deep->layer4[2]).bn3.weight)).item(), 0);
}

// Blocks whose branch adds nothing pass on their shortcut: with padding, every second pixel amid
// channels of zeros.
TEST(ResNet, PaddedShortcutsTakeEverySecondPixel) {
  nn::models::BasicBlock block(2, 6, 2, nn::models::Shortcut::padding);
  nn::init::zeros_(block.bn2.weight);
  const Tensor x = test::uniform({1, 2, 5, 4}, 0, 1, 1, f32);  // what relu leaves alone
  const Tensor y = block(x);
  ASSERT_EQ(y.shape(), Shape({1, 6, 3, 2}));
  for (int64_t c = 0; c < 6; ++c) {
    for (int64_t i = 0; i < 6; ++i) {
      const double expected =
          c < 2 || c > 3
              ? 0
              : select(select(select(select(x, 0, 0), 0, c - 2), 0, i / 2 * 2), 0, i % 2 * 2)
                    .item();
      EXPECT_EQ(select(select(select(select(y, 0, 0), 0, c), 0, i / 2), 0, i % 2).item(), expected);
    }
  }
  EXPECT_EQ(block.downsample.size(), 0);
}

TEST(ResNet, EveryParameterGetsAGradient) {
  manual_seed(1);
  for (const char* name : {"resnet18", "resnet50", "resnet20"}) {
    const auto model = make_resnet(name, {.classes = 5});
    backward(cross_entropy((*model)(randn({2, 3, 40, 40})), randint(0, 5, {2})));
    for (const auto& [parameter, tensor] : model->named_parameters()) {
      ASSERT_TRUE(tensor.grad().defined()) << name << " " << parameter;
      EXPECT_TRUE(std::isfinite(sum(tensor.grad()).item())) << name << " " << parameter;
    }
  }
}

}  // namespace
}  // namespace weft
