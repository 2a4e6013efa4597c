#include "nn/models/mnist.h"

#include "ops/elementwise.h"
#include "ops/pool.h"
#include "ops/view.h"

namespace weft::nn::models {

MnistMlp::MnistMlp() {
  add("fc1", fc1);
  add("fc2", fc2);
}

Tensor MnistMlp::forward(const Tensor& images) {
  const Tensor x = images.dims() > 2 ? flatten(images, 1) : images;
  return fc2(relu(fc1(x)));
}

MnistCnn::MnistCnn() {
  add("conv1", conv1);
  add("conv2", conv2);
  add("fc1", fc1);
  add("fc2", fc2);
}

Tensor MnistCnn::forward(const Tensor& images) {
  // ReLU and max pooling commute, values and gradients alike; pooling first leaves a quarter to do.
  Tensor x = relu(max_pool2d(conv1(images), {2, 2}));
  x = relu(max_pool2d(conv2(x), {2, 2}));
  return fc2(relu(fc1(flatten(x, 1))));
}

MnistNormCnn::MnistNormCnn() {
  add("conv1", conv1);
  add("norm1", norm1);
  add("conv2", conv2);
  add("norm2", norm2);
  add("fc1", fc1);
  add("fc2", fc2);
}

Tensor MnistNormCnn::forward(const Tensor& images) {
  Tensor x = relu(max_pool2d(norm1(conv1(images)), {2, 2}));
  x = relu(max_pool2d(norm2(conv2(x)), {2, 2}));
  return fc2(relu(fc1(flatten(x, 1))));
}

Ref<Module> make_mnist_model(std::string_view name) {
  if (name == "mlp") return make_ref<MnistMlp>();
  if (name == "cnn") return make_ref<MnistCnn>();
  if (name == "norm_cnn") return make_ref<MnistNormCnn>();
  throw_error("mnist", {"expected the model mlp, cnn or norm_cnn, got ", name});
}

}  // namespace weft::nn::models
