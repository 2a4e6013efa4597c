// Normalisation layers (ops/norm.h has formulas and sources). Weights start at 1, biases at 0.
#pragma once

#include "nn/module.h"

namespace weft::nn {

struct BatchNormLayerOptions {
  double eps = 1e-5;
  double momentum = 0.1;            // share of the batch in the new running statistics
  bool affine = true;               // a weight and a bias
  bool track_running_stats = true;  // without, evaluation uses the batch's statistics, too
};

// What BatchNorm1d and 2d share. The running statistics are f32 buffers, in the parameters' f64
// after to(f64, true).
class BatchNorm : public Module {
 public:
  Tensor weight;               // [channels], or undefined
  Tensor bias;                 // [channels], or undefined
  Tensor running_mean;         // [channels], or undefined
  Tensor running_var;          // [channels], or undefined
  Tensor num_batches_tracked;  // i64 [], or undefined

 protected:
  BatchNorm(int64_t channels, const BatchNormLayerOptions& options);
  Tensor normalise(const Tensor& x, bool relu = false, const Tensor& residual = {});

 private:
  BatchNormLayerOptions options_;
};

// [N, C] or [N, C, L]
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm(channels, options) {}
  Tensor forward(const Tensor& x) override;
};

// [N, C, H, W]
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNormLayerOptions& options = {})
      : BatchNorm(channels, options) {}
  Tensor forward(const Tensor& x) override;
  // relu(forward(x)), or relu(forward(x) + residual), as one operator (batch_norm_relu in
  // ops/norm.h); residual has x's shape. Hooks run as in a call, and see the result after the ReLU.
  Tensor then_relu(const Tensor& x, const Tensor& residual = {});
};

// Over the last dims, of sizes `normalized`: one number for the last dim alone.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& normalized, double eps = 1e-5, bool affine = true);
  explicit LayerNorm(int64_t normalized, double eps = 1e-5, bool affine = true)
      : LayerNorm(Shape{normalized}, eps, affine) {}
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [normalized…], or undefined
  Tensor bias;    // [normalized…], or undefined

 private:
  Shape normalized_;
  double eps_;
};

class RmsNorm : public Module {
 public:
  explicit RmsNorm(const Shape& normalized, double eps = 1e-6, bool affine = true);
  explicit RmsNorm(int64_t normalized, double eps = 1e-6, bool affine = true)
      : RmsNorm(Shape{normalized}, eps, affine) {}
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [normalized…], or undefined

 private:
  Shape normalized_;
  double eps_;
};

// [N, C, …], whose channels `groups` divides.
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x) override;

  Tensor weight;  // [channels], or undefined
  Tensor bias;    // [channels], or undefined

 private:
  int64_t groups_;
  double eps_;
};

}  // namespace weft::nn
