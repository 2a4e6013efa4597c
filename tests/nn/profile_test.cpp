// Profiles of models, and that the hot path of a residual network copies no images.
#include "nn/profile.h"

#include "autograd/engine.h"
#include "autograd/recompute.h"
#include "nn/nn.h"
#include "ops/detail/conv.h"
#include "ops/detail/copies.h"
#include "ops/detail/images.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <string_view>

namespace weft {
namespace {

// A bottleneck of a residual network (He et al., 2016, figure 5).
struct Bottleneck : nn::Module {
  nn::Conv2d conv1{64, 16, 1, {}, false};
  nn::BatchNorm2d bn1{16};
  nn::Conv2d conv2{16, 16, 3, {.stride = {2, 2}, .padding = {1, 1}}, false};
  nn::BatchNorm2d bn2{16};
  nn::Conv2d conv3{16, 64, 1, {}, false};
  nn::BatchNorm2d bn3{64};
  nn::Conv2d shortcut{64, 64, 1, {.stride = {2, 2}}, false};
  nn::BatchNorm2d shortcut_norm{64};
  Bottleneck() {
    add("conv1", conv1);
    add("bn1", bn1);
    add("conv2", conv2);
    add("bn2", bn2);
    add("conv3", conv3);
    add("bn3", bn3);
    add("shortcut", shortcut);
    add("shortcut_norm", shortcut_norm);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor branch = conv3(bn2.then_relu(conv2(bn1.then_relu(conv1(x)))));
    return bn3.then_relu(branch, shortcut_norm(shortcut(x)));
  }
};

// A stem before it and a head behind it.
struct ConvNet : nn::Module {
  nn::Conv2d stem{3, 64, 7, {.stride = {2, 2}, .padding = {3, 3}}, false};
  nn::BatchNorm2d norm{64};
  nn::MaxPool2d pool{3, {.stride = {2, 2}, .padding = {1, 1}}};
  Bottleneck block;
  nn::AdaptiveAvgPool2d mean{1};
  nn::Linear head{64, 10};
  ConvNet() {
    add("stem", stem);
    add("norm", norm);
    add("pool", pool);
    add("block", block);
    add("mean", mean);
    add("head", head);
  }
  Tensor forward(const Tensor& x) override {
    return head(flatten(mean(block(pool(norm.then_relu(stem(x))))), 1));
  }
};

struct Training {
  ConvNet net;
  optim::Sgd optimizer{net.parameters(), {.lr = 0.01, .momentum = 0.9}};
  Tensor images = channels_last(randn({4, 3, 32, 32}));
  Tensor targets = randint(0, 10, {4});

  void step() {
    optimizer.zero_grad();
    backward(cross_entropy(net(images), targets));
    optimizer.step();
  }
};

TEST(HotPath, CopiesNoImagesAndEachWeightOnceAUse) {
  manual_seed(1);
  Training training;
  training.step();
  training.step();
  detail::CopyCounts& counts = detail::copy_counts();
  counts = {};
  training.step();
  EXPECT_EQ(counts.images, 0);
  EXPECT_EQ(counts.primitives, 0);
  // Five convolutions. Their weights are arranged once for forward and once for backward, but for
  // the images' own gradient, which nobody wants; the gradients of weights may come in an
  // arrangement of oneDNN's.
  EXPECT_GE(counts.weights, 5 + 4);
  EXPECT_LE(counts.weights, 5 + 4 + 5);

  // That the count sees what it should: images in the other layout, and in another dtype.
  counts = {};
  training.images = contiguous(training.images);
  training.step();
  EXPECT_GT(counts.images, 0);
}

// The same of oneDNN, wherever Weft prefers its own kernels.
TEST(HotPath, OnednnTakesImagesAsTheyAre) {
  const detail::ConvShape shape{.images = 2,
                                .channels = 32,
                                .in = {8, 8},
                                .outputs = 48,
                                .out = {4, 4},
                                .kernel = {3, 3},
                                .stride = {2, 2},
                                .padding = {1, 1},
                                .dilation = {1, 1}};
  const Tensor x = channels_last(randn(shape.in_shape()));
  const Tensor g = channels_last(randn(shape.out_shape()));
  const Tensor weight = randn(shape.weight_shape());
  const Tensor y = detail::empty_images(shape.out_shape(), f32);
  const Tensor dx = detail::empty_images(shape.in_shape(), f32);
  const Tensor dw = empty_like(weight);
  detail::CopyCounts& counts = detail::copy_counts();
  for (int i = 0; i < 2; ++i) {
    counts = {};
    const auto way = detail::ConvWay::onednn;
    detail::conv_forward(shape, x, weight, {}, y, way);
    detail::conv_backward_data(shape, g, weight, {}, dx, way);
    detail::conv_backward_weights(shape, x, g, dw, {}, way);
    EXPECT_EQ(counts.primitives, i == 0 ? 3 : 0);
    EXPECT_LE(counts.weights, 3);
    EXPECT_EQ(counts.images, 0);
  }
}

// oneDNN's reference implementations, which it falls back on without a word, are hundreds of times
// slower than what could be had.
TEST(HotPath, RunsNoReferenceImplementation) {
  detail::CopyCounts& counts = detail::copy_counts();
  for (const DType dtype : {f32, bf16, f16}) {
    counts = {};
    const auto variable = [&](const Shape& shape) {
      Tensor x = to(randn(shape), dtype);
      x.set_requires_grad(true);
      return x;
    };
    for (const int64_t groups : {1, 2, 6}) {
      for (const int64_t dilation : {1, 2}) {
        for (const int64_t kernel : {1, 3}) {
          const Tensor x = variable({2, 6, 9, 9});
          const Tensor weight = variable({12, 6 / groups, kernel, kernel});
          const Tensor bias = variable({12});
          backward(
              sum(conv2d(x, weight, bias,
                         {.stride = {2, 2}, .dilation = {dilation, dilation}, .groups = groups})));
        }
      }
    }
    backward(sum(linear(variable({7, 33}), variable({5, 33}), variable({5}))));
    backward(sum(linear(variable({2, 64, 32}), variable({96, 32}), variable({96}))));
    backward(sum(matmul(variable({3, 16, 24}), transpose(variable({3, 8, 24}), 1, 2))));
    EXPECT_EQ(counts.references, 0) << concat({dtype});
  }
}

TEST(Profile, ChargesOperatorsToTheirLayers) {
  manual_seed(1);
  Training training;
  Profiler profiler;
  {
    const ProfilerScope scope(profiler);
    training.step();
    training.step();
  }
  const auto find = [&](const void* layer, std::string_view op, bool backward) {
    for (const ProfileEntry& entry : profiler.entries()) {
      if (entry.layer == layer && entry.op == op && entry.backward == backward) return entry;
    }
    return ProfileEntry{};
  };
  const auto& conv = training.net.block.conv1;
  const int64_t flops = 2 * 2 * (4 * 16 * 8 * 8) * 64;  // of two steps
  EXPECT_EQ(find(&conv, "conv2d", false).calls, 2);
  EXPECT_EQ(find(&conv, "conv2d", false).flops, flops);
  EXPECT_EQ(find(&conv, "conv2d", true).flops, 2 * flops);
  // x once for the statistics; x and the residual in, the result and its bits out; beside them a
  // few numbers a channel.
  const double elements = 2 * 4 * 64 * 4 * 4;
  const double channels = 2 * 64 * 128;
  EXPECT_NEAR(double(find(&training.net.block.bn3, "batch_norm_relu", false).bytes),
              elements * (4 * 4 + 1.0 / 8), channels);
  EXPECT_NEAR(double(find(&training.net.block.bn3, "batch_norm_relu", true).bytes),
              elements * (6 * 4 + 2.0 / 8), channels);
  EXPECT_EQ(find(&training.net.pool, "max_pool2d", true).calls, 2);
  EXPECT_EQ(find(nullptr, "sgd", false).calls, 2);
  EXPECT_EQ(find(nullptr, "cross_entropy", true).calls, 2);

  const nn::ProfileRun run{.steps = 2, .seconds = 1, .speed = {.flops = 1e12, .bytes = 1e11}};
  const std::string table = nn::profile_table(profiler, training.net, run);
  for (const char* part : {"conv2d backward", "batch_norm_relu", "block.conv2", "(outside)",
                           "outside operators", "Bottleneck", "1000.0 GFLOP/s"}) {
    const bool expected = std::string_view(part) != "Bottleneck";  // it has no operator of its own
    EXPECT_EQ(table.find(part) != std::string::npos, expected) << part << "\n" << table;
  }
  EXPECT_NE(test::error_of([&] {
              nn::profile_table(profiler, training.net, {.steps = 0});
            }).find("[profile_table]"),
            std::string::npos);
}

TEST(Profile, SeesIntoRecomputation) {
  nn::Linear layer(8, 8);
  const Tensor x = randn({4, 8}).set_requires_grad();
  Profiler profiler;
  const ProfilerScope scope(profiler);
  const Tensor y =
      recompute([&](std::span<const Tensor> in) { return layer(in[0]); }, std::span(&x, 1));
  backward(sum(y));
  int64_t forward = 0, backward = 0;
  for (const ProfileEntry& entry : profiler.entries()) {
    if (entry.layer == &layer && std::string_view(entry.op) == "linear")
      (entry.backward ? backward : forward) += entry.calls;
  }
  EXPECT_EQ(forward, 2);
  EXPECT_EQ(backward, 1);
}

}  // namespace
}  // namespace weft
