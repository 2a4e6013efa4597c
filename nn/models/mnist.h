// The networks of the mnist app, for 28×28 images of ten classes. Parameter names are those of
// the same PyTorch modules: "fc1.weight", "conv1.bias", …
#pragma once

#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/norm.h"

#include <string_view>

namespace weft::nn::models {

// 784-128-10: images [N, 784], or anything of 784 values a sample, to logits [N, 10].
struct MnistMlp : Module {
  MnistMlp();
  Tensor forward(const Tensor& images) override;

  Linear fc1{784, 128};
  Linear fc2{128, 10};
};

// Two 3×3 convolutions, each with ReLU and 2×2 max pooling, then two linear layers: images [N, 1,
// 28, 28] to logits [N, 10].
struct MnistCnn : Module {
  MnistCnn();
  Tensor forward(const Tensor& images) override;

  Conv2d conv1{1, 32, 3, {.padding = {1, 1}}};
  Conv2d conv2{32, 64, 3, {.padding = {1, 1}}};
  Linear fc1{3136, 128};
  Linear fc2{128, 10};
};

// The same with BatchNorm behind each convolution, whose bias it makes needless.
struct MnistNormCnn : Module {
  MnistNormCnn();
  Tensor forward(const Tensor& images) override;

  Conv2d conv1{1, 32, 3, {.padding = {1, 1}}, false};
  BatchNorm2d norm1{32};
  Conv2d conv2{32, 64, 3, {.padding = {1, 1}}, false};
  BatchNorm2d norm2{64};
  Linear fc1{3136, 128};
  Linear fc2{128, 10};
};

// "mlp", "cnn" or "norm_cnn".
Ref<Module> make_mnist_model(std::string_view name);

}  // namespace weft::nn::models
