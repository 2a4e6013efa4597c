// Residual networks (He et al., "Deep residual learning for image recognition", CVPR 2016), with
// the parameter and buffer names of torchvision, so that a safetensors export of its weights loads
// by name: "conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight",
// "layer2.0.downsample.0.weight", "fc.bias", …
//
//   auto model = nn::models::resnet50(1000);
//   const auto small = nn::models::make_resnet("resnet20", {.channels = 1, .classes = 10});
#pragma once

#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/sequential.h"

#include <string>
#include <string_view>
#include <vector>

namespace weft::nn::models {

// What a residual block adds its branch to, where the two differ in shape.
enum class Shortcut : uint8_t {
  projection,  // a 1×1 convolution and a BatchNorm: "downsample.0", "downsample.1" (option B)
  padding,     // every second pixel, zeros as new channels, half before and half after (option A)
};

// A network's plan.
struct ResNetPlan {
  bool bottleneck = false;      // blocks of 1×1, 3×3, 1×1 convolutions; else of two 3×3
  std::vector<int64_t> blocks;  // of each stage; from the second stage on the first has stride 2
  int64_t width = 64;           // channels of the first stage's 3×3; each next has twice as many
  int64_t widening = 1;         // of a bottleneck's 3×3 (Zagoruyko & Komodakis 2016)
  bool small_images = false;    // a stem of one 3×3; else a 7×7 of stride 2 and a pooling
  Shortcut shortcut = Shortcut::projection;
  int64_t image_size = 224;  // side of the images that it was published for
};

// resnet18, 34, 50, 101, 152: those of torchvision, "v1.5": a bottleneck's stride is in its 3×3.
// wide_resnet50_2, wide_resnet101_2: bottlenecks whose 3×3 is twice as wide.
// resnet20, 32, 44, 56, 110: for 32×32 images, of widths 16, 32, 64, with padded shortcuts (option
// A), as §4.2 has them; 28×28 will do. Their names follow those of the others.
// wide_resnet14_2, wide_resnet20_2, wide_resnet14_4: those of 14 and 20 layers with two and four
// times the channels (after Zagoruyko & Komodakis 2016, §2, whose own have another order of
// layers).
const std::vector<std::string>& resnet_names();
ResNetPlan resnet_plan(std::string_view name);

struct ResNetOptions {
  int64_t channels = 3;  // of images
  int64_t classes = 1000;
  // Whether the gain of each block's last BatchNorm starts from 0, and the block so from its
  // shortcut (Goyal et al. 2017, §5.1).
  bool zero_init_residual = false;
};

// Two 3×3 convolutions.
class BasicBlock final : public Module {
 public:
  BasicBlock(int64_t in, int64_t width, int64_t stride, Shortcut shortcut);
  Tensor forward(const Tensor& x) override;

  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Sequential downsample;  // empty where x is added as it is, or padded
 private:
  int64_t stride_;
};

// 1×1 to `inner` channels, 3×3, 1×1 to four times `width`.
class Bottleneck final : public Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t inner, int64_t stride);
  Tensor forward(const Tensor& x) override;

  Conv2d conv1;
  BatchNorm2d bn1;
  Conv2d conv2;
  BatchNorm2d bn2;
  Conv2d conv3;
  BatchNorm2d bn3;
  Sequential downsample;
};

// Images [N, channels, H, W] to logits [N, classes]. Convolutions start from N(0, 2 / fan out) (He
// et al. 2015, equation 15), BatchNorm from 1 and 0, the last layer from Linear's default: as in
// torchvision.
class ResNet final : public Module {
 public:
  explicit ResNet(const ResNetPlan& plan, const ResNetOptions& options = {});
  Tensor forward(const Tensor& images) override;

  Conv2d conv1;
  BatchNorm2d bn1;
  Sequential layer1, layer2, layer3, layer4;  // of blocks; small images have no layer4
  Linear fc;

 private:
  bool small_images_;
};

ResNet resnet18(int64_t classes = 1000);
ResNet resnet34(int64_t classes = 1000);
ResNet resnet50(int64_t classes = 1000);
ResNet resnet101(int64_t classes = 1000);
ResNet resnet152(int64_t classes = 1000);

// Any of resnet_names().
Ref<ResNet> make_resnet(std::string_view name, const ResNetOptions& options = {});

}  // namespace weft::nn::models
