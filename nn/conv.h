// Convolutions of images [N, C, H, W] (ops/conv.h). Kernels are {height, width}, or one number for
// both.
#pragma once

#include "nn/module.h"
#include "ops/conv.h"
#include "ops/conv_transpose.h"

namespace weft::nn {

class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, const Shape& kernel, const Conv2dOptions& options = {},
         bool with_bias = true);
  Conv2d(int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options = {},
         bool with_bias = true)
      : Conv2d(in, out, Shape{kernel, kernel}, options, with_bias) {}
  Tensor forward(const Tensor& x) override;
  const Conv2dOptions& options() const { return options_; }

  Tensor weight;  // [out, in / groups, height, width]
  Tensor bias;    // [out], or undefined

 private:
  Conv2dOptions options_;
};

class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(int64_t in, int64_t out, const Shape& kernel,
                  const ConvTranspose2dOptions& options = {}, bool with_bias = true);
  ConvTranspose2d(int64_t in, int64_t out, int64_t kernel,
                  const ConvTranspose2dOptions& options = {}, bool with_bias = true)
      : ConvTranspose2d(in, out, Shape{kernel, kernel}, options, with_bias) {}
  Tensor forward(const Tensor& x) override;
  const ConvTranspose2dOptions& options() const { return options_; }

  Tensor weight;  // [in, out / groups, height, width]
  Tensor bias;    // [out], or undefined

 private:
  ConvTranspose2dOptions options_;
};

}  // namespace weft::nn
