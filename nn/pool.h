// Pooling and reshaping as modules. Kernels are {height, width}, or one number for both.
#pragma once

#include "nn/module.h"
#include "ops/pool.h"
#include "ops/view.h"

namespace weft::nn {

struct MaxPool2d : Module {
  explicit MaxPool2d(const Shape& size, const MaxPool2dOptions& how = {})
      : kernel(size), options(how) {}
  explicit MaxPool2d(int64_t size, const MaxPool2dOptions& how = {})
      : MaxPool2d(Shape{size, size}, how) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel, options); }
  Shape kernel;
  MaxPool2dOptions options;
};

struct AvgPool2d : Module {
  explicit AvgPool2d(const Shape& size, const AvgPool2dOptions& how = {})
      : kernel(size), options(how) {}
  explicit AvgPool2d(int64_t size, const AvgPool2dOptions& how = {})
      : AvgPool2d(Shape{size, size}, how) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel, options); }
  Shape kernel;
  AvgPool2dOptions options;
};

struct AdaptiveAvgPool2d : Module {
  explicit AdaptiveAvgPool2d(const Shape& output) : size(output) {}
  explicit AdaptiveAvgPool2d(int64_t output) : size{output, output} {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size); }
  Shape size;
};

// Dims `from` to `to` become one, in logical order.
struct Flatten : Module {
  explicit Flatten(int64_t first = 1, int64_t last = -1) : from_dim(first), to_dim(last) {}
  Tensor forward(const Tensor& x) override { return flatten(x, from_dim, to_dim); }
  int64_t from_dim;
  int64_t to_dim;
};

struct Identity : Module {
  Tensor forward(const Tensor& x) override { return x; }
};

}  // namespace weft::nn
