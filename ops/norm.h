// Normalisations. Floating dtypes; 16-bit inputs have f32 statistics, and their weights may be f32.
// The result has the dtype of x. Weights and biases may be undefined: 1 and 0.
#pragma once

#include "core/tensor.h"

namespace weft {

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;  // share of the batch in the new running statistics
  double eps = 1e-5;
};

// Normalises each channel over batch and positions (Ioffe & Szegedy, "Batch Normalization", 2015,
// algorithm 1):
//   y = (x - mean) / sqrt(var + eps) * weight + bias
// x is [N, C], or [N, C, …] with up to 3 position dims; weight, bias, running_mean, running_var are
// [C]. Images come out channels-last. In training, mean and (biased) variance are the batch's, and
// the running statistics, where defined, move towards it in place (with the unbiased variance);
// more than one value per channel is needed. A batch of no samples leaves them as they are.
// Otherwise mean and variance are the running statistics.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormOptions& options = {});

// relu(batch_norm(x, …) + residual) in as many passes over memory as batch_norm alone (He et al.,
// "Deep Residual Learning for Image Recognition", 2016, equation 1). residual has x's shape and
// dtype, or is undefined: nothing is added. 16-bit numbers are rounded once, at the end. Backward
// needs x and a bit for each element of the result: whoever does not use the result can let go of
// it. As relu has it, NaN stays.
Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormOptions& options = {}, const Tensor& residual = {});

// Normalises each sample over `groups` equal runs of its channels and all positions (Wu & He,
// "Group Normalization", 2018, equations 1, 2, 7). x is [N, C, …] with up to 3 position dims;
// weight, bias are [C].
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// Normalises over the last dims, whose sizes are `normalized` (Ba, Kiros & Hinton, "Layer
// Normalization", 2016, equations 3, 4); weight and bias have that shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// The same without centring (Zhang & Sennrich, "Root Mean Square Layer Normalization", 2019,
// equation 4):
//   y = x / sqrt(mean(x^2) + eps) * weight
Tensor rms_norm(const Tensor& x, const Shape& normalized, const Tensor& weight = {},
                double eps = 1e-6);

}  // namespace weft
