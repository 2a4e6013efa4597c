#include "nn/models/resnet.h"

#include "nn/init.h"
#include "ops/join.h"
#include "ops/pool.h"
#include "ops/view.h"

#include <algorithm>
#include <utility>

namespace weft::nn::models {
namespace {

constexpr int64_t kExpansion = 4;  // of a bottleneck

Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  const int64_t padding = kernel / 2;
  return {in, out, kernel, {.stride = {stride, stride}, .padding = {padding, padding}}, false};
}

// relu(norm(x)), or relu(norm(x) + shortcut): what every convolution of a block ends in.
Tensor norm_relu(BatchNorm2d& norm, const Tensor& x, const Tensor& shortcut = {}) {
  return norm.then_relu(x, shortcut);
}

void add_projection(Sequential& downsample, int64_t in, int64_t out, int64_t stride) {
  downsample.add<Conv2d>(in, out, 1, Conv2dOptions{.stride = {stride, stride}}, false);
  downsample.add<BatchNorm2d>(out);
}

// Option A. Pooling over windows of one pixel takes every stride-th without changing the layout.
Tensor padded(const Tensor& x, int64_t channels, int64_t stride) {
  const Tensor taken = stride == 1 ? x : max_pool2d(x, {1, 1}, {.stride = {stride, stride}});
  const int64_t more = channels - x.size(1);
  return more == 0 ? taken : pad(taken, {0, 0, 0, 0, more / 2, more - more / 2});
}

// What is known of a network by its name.
struct Published {
  const char* name;
  bool bottleneck;
  std::vector<int64_t> blocks;
  int64_t widening = 1;
  int64_t width = 64;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"resnet18", false, {2, 2, 2, 2}},
      {"resnet34", false, {3, 4, 6, 3}},
      {"resnet50", true, {3, 4, 6, 3}},
      {"resnet101", true, {3, 4, 23, 3}},
      {"resnet152", true, {3, 8, 36, 3}},
      {"wide_resnet50_2", true, {3, 4, 6, 3}, 2},
      {"wide_resnet101_2", true, {3, 4, 23, 3}, 2},
      // 6n + 2 layers.
      {"resnet20", false, {3, 3, 3}, 1, 16},
      {"resnet32", false, {5, 5, 5}, 1, 16},
      {"resnet44", false, {7, 7, 7}, 1, 16},
      {"resnet56", false, {9, 9, 9}, 1, 16},
      {"resnet110", false, {18, 18, 18}, 1, 16},
      {"wide_resnet14_2", false, {2, 2, 2}, 1, 32},
      {"wide_resnet20_2", false, {3, 3, 3}, 1, 32},
      {"wide_resnet14_4", false, {2, 2, 2}, 1, 64},
  };
  return all;
}

const ResNetPlan& checked(const ResNetPlan& plan) {
  WEFT_CHECK(plan.blocks.size() == (plan.small_images ? 3U : 4U) &&
                 std::all_of(plan.blocks.begin(), plan.blocks.end(),
                             [](int64_t count) { return count >= 1; }),
             "resnet", "expected at least one block in each of ", plan.small_images ? 3 : 4,
             " stages, got ", plan.blocks.size(), " stages");
  WEFT_CHECK(plan.width >= 1 && plan.widening >= 1, "resnet",
             "expected a width and a widening of 1 or more, got ", plan.width, " and ",
             plan.widening);
  WEFT_CHECK(!plan.bottleneck || plan.shortcut == Shortcut::projection, "resnet",
             "expected projections as shortcuts of bottlenecks, got padding");
  WEFT_CHECK(plan.bottleneck || plan.widening == 1, "resnet",
             "expected a widening of bottlenecks, got ", plan.widening, " of basic blocks");
  return plan;
}

int64_t last_channels(const ResNetPlan& plan) {
  const int64_t last = plan.width << (plan.blocks.size() - 1);
  return plan.bottleneck ? kExpansion * last : last;
}

}  // namespace

BasicBlock::BasicBlock(int64_t in, int64_t width, int64_t stride, Shortcut shortcut)
    : conv1(convolution(in, width, 3, stride)),
      bn1(width),
      conv2(convolution(width, width, 3, 1)),
      bn2(width),
      stride_(stride) {
  add("conv1", conv1);
  add("bn1", bn1);
  add("conv2", conv2);
  add("bn2", bn2);
  WEFT_CHECK(shortcut == Shortcut::projection || in <= width, "resnet",
             "expected no fewer channels after a padded shortcut, got ", in, " before and ", width,
             " after");
  if (shortcut == Shortcut::projection && (stride != 1 || in != width))
    add_projection(downsample, in, width, stride);
  if (downsample.size() > 0) add("downsample", downsample);
}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor branch = conv2(norm_relu(bn1, conv1(x)));
  return norm_relu(bn2, branch,
                   downsample.size() > 0 ? downsample(x) : padded(x, branch.size(1), stride_));
}

Bottleneck::Bottleneck(int64_t in, int64_t width, int64_t inner, int64_t stride)
    : conv1(convolution(in, inner, 1, 1)),
      bn1(inner),
      conv2(convolution(inner, inner, 3, stride)),
      bn2(inner),
      conv3(convolution(inner, kExpansion * width, 1, 1)),
      bn3(kExpansion * width) {
  add("conv1", conv1);
  add("bn1", bn1);
  add("conv2", conv2);
  add("bn2", bn2);
  add("conv3", conv3);
  add("bn3", bn3);
  if (stride == 1 && in == kExpansion * width) return;
  add_projection(downsample, in, kExpansion * width, stride);
  add("downsample", downsample);
}

Tensor Bottleneck::forward(const Tensor& x) {
  const Tensor branch = conv3(norm_relu(bn2, conv2(norm_relu(bn1, conv1(x)))));
  return norm_relu(bn3, branch, downsample.size() > 0 ? downsample(x) : x);
}

ResNet::ResNet(const ResNetPlan& plan, const ResNetOptions& options)
    : conv1(checked(plan).small_images ? convolution(options.channels, plan.width, 3, 1)
                                       : convolution(options.channels, plan.width, 7, 2)),
      bn1(plan.width),
      fc(last_channels(plan), options.classes),
      small_images_(plan.small_images) {
  add("conv1", conv1);
  add("bn1", bn1);
  int64_t channels = plan.width;
  const std::vector<std::pair<const char*, Sequential*>> stages = {
      {"layer1", &layer1}, {"layer2", &layer2}, {"layer3", &layer3}, {"layer4", &layer4}};
  for (size_t stage = 0; stage < plan.blocks.size(); ++stage) {
    const auto& [name, layer] = stages[stage];
    const int64_t width = plan.width << stage;
    for (int64_t block = 0; block < plan.blocks[stage]; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      if (plan.bottleneck) {
        layer->add<Bottleneck>(channels, width, width * plan.widening, stride);
      } else {
        layer->add<BasicBlock>(channels, width, stride, plan.shortcut);
      }
      channels = plan.bottleneck ? kExpansion * width : width;
    }
    add(name, *layer);
  }
  add("fc", fc);
  for (const auto& [name, module] : named_modules()) {
    if (auto* const convolution = dynamic_cast<Conv2d*>(module))
      init::kaiming_normal_(convolution->weight, 0, init::Fan::out);
    if (!options.zero_init_residual) continue;
    if (auto* const block = dynamic_cast<BasicBlock*>(module)) init::zeros_(block->bn2.weight);
    if (auto* const block = dynamic_cast<Bottleneck*>(module)) init::zeros_(block->bn3.weight);
  }
}

Tensor ResNet::forward(const Tensor& images) {
  WEFT_CHECK(images.dims() == 4 && images.size(1) == conv1.weight.size(1), "resnet",
             "expected images [N, ", conv1.weight.size(1), ", H, W], got ", images.shape());
  Tensor x = norm_relu(bn1, conv1(images));
  if (!small_images_) x = max_pool2d(x, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}});
  x = layer3(layer2(layer1(x)));
  if (!small_images_) x = layer4(x);
  return fc(flatten(adaptive_avg_pool2d(x, {1, 1}), 1));
}

const std::vector<std::string>& resnet_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Published& one : published())
      list.emplace_back(one.name);
    return list;
  }();
  return names;
}

ResNetPlan resnet_plan(std::string_view name) {
  for (const Published& one : published()) {
    if (one.name != name) continue;
    ResNetPlan plan{.bottleneck = one.bottleneck,
                    .blocks = one.blocks,
                    .width = one.width,
                    .widening = one.widening};
    if (one.blocks.size() == 3) {
      plan.small_images = true;
      plan.shortcut = Shortcut::padding;
      plan.image_size = 32;
    }
    return plan;
  }
  std::string names;
  for (const std::string& known : resnet_names())
    names += (names.empty() ? "" : ", ") + known;
  throw_error("resnet", {"expected one of ", names, ", got ", name});
}

ResNet resnet18(int64_t classes) {
  return ResNet(resnet_plan("resnet18"), {.classes = classes});
}
ResNet resnet34(int64_t classes) {
  return ResNet(resnet_plan("resnet34"), {.classes = classes});
}
ResNet resnet50(int64_t classes) {
  return ResNet(resnet_plan("resnet50"), {.classes = classes});
}
ResNet resnet101(int64_t classes) {
  return ResNet(resnet_plan("resnet101"), {.classes = classes});
}
ResNet resnet152(int64_t classes) {
  return ResNet(resnet_plan("resnet152"), {.classes = classes});
}

Ref<ResNet> make_resnet(std::string_view name, const ResNetOptions& options) {
  return make_ref<ResNet>(resnet_plan(name), options);
}

}  // namespace weft::nn::models
