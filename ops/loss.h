// Losses. Sums have one order, whatever the number of threads: cross entropy and nll_loss add their
// samples one by one in f64, the elementwise losses as reduce.h says. 16-bit inputs are computed in
// f32 and give an f32 loss.
#pragma once

#include "core/tensor.h"

namespace weft {

enum class Reduction { none, mean, sum };

struct CrossEntropyOptions {
  Tensor class_weights = {};  // [C], of the logits' dtype or f32
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Reduction reduction = Reduction::mean;
};

// Cross entropy of logits [N, C] or [N, C, d1, …] with class indices (i64 or i32, [N] or [N, d1,
// …]) or with class probabilities of the logits' shape. Forward and backward are one pass each. A
// sample whose index is ignore_index counts for nothing. Reduction::mean divides by the class
// weights of the samples that count (by their number, without weights); with probabilities, by the
// number of samples. When none counts, the mean is NaN, as in PyTorch. Label smoothing mixes the
// target with 1/C in each class (Szegedy et al., CVPR 2016, §7).
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options = {});

struct NllOptions {
  Tensor class_weights = {};
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
// The same from log-probabilities, class indices only.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                const NllOptions& options = {});

// Elementwise losses; x and target have one shape.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
// Quadratic where |x - target| < beta, linear beyond (Girshick, ICCV 2015, eq. 3, scaled by beta).
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1,
                      Reduction reduction = Reduction::mean);
// Binary cross entropy of sigmoid(x) with targets in [0, 1], safe for large |x|. `positive_weight`
// (undefined: 1) multiplies the positive term and broadcasts.
Tensor bce_with_logits(const Tensor& x, const Tensor& target, const Tensor& positive_weight = {},
                       Reduction reduction = Reduction::mean);

}  // namespace weft
