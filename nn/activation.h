// Activations and dropout as modules, for Sequential; elsewhere the functions of ops/ are shorter.
#pragma once

#include "nn/module.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"

namespace weft::nn {

struct Relu : Module {
  Tensor forward(const Tensor& x) override { return relu(x); }
};

struct LeakyRelu : Module {
  explicit LeakyRelu(double negative_slope = 0.01) : slope(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope); }
  double slope;
};

struct Elu : Module {
  explicit Elu(double scale = 1) : alpha(scale) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha); }
  double alpha;
};

struct Gelu : Module {
  // `tanh`: the approximation GPT-2 was trained with.
  explicit Gelu(bool tanh = false) : approximate(tanh) {}
  Tensor forward(const Tensor& x) override { return approximate ? gelu_tanh(x) : gelu(x); }
  bool approximate;
};

struct Silu : Module {
  Tensor forward(const Tensor& x) override { return silu(x); }
};

struct Sigmoid : Module {
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

struct Tanh : Module {
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

struct Softplus : Module {
  explicit Softplus(double steepness = 1, double linear_above = 20)
      : beta(steepness), threshold(linear_above) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta, threshold); }
  double beta;
  double threshold;
};

// Drops elements with probability p in training; in evaluation x passes unchanged.
struct Dropout : Module {
  explicit Dropout(double probability = 0.5) : p(probability) {
    WEFT_CHECK(p >= 0 && p <= 1, "dropout", "expected a probability in [0, 1], got ", p);
  }
  Tensor forward(const Tensor& x) override { return dropout(x, p, training()); }
  double p;
};

}  // namespace weft::nn
