// Losses as objects that carry their options; ops/loss.h has the functions.
#pragma once

#include "ops/loss.h"

namespace weft::nn {

struct CrossEntropyLoss {
  CrossEntropyOptions options = {};
  Tensor operator()(const Tensor& logits, const Tensor& target) const {
    return cross_entropy(logits, target, options);
  }
};

struct NllLoss {
  NllOptions options = {};
  Tensor operator()(const Tensor& log_probabilities, const Tensor& target) const {
    return nll_loss(log_probabilities, target, options);
  }
};

struct MseLoss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return mse_loss(x, target, reduction);
  }
};

struct L1Loss {
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return l1_loss(x, target, reduction);
  }
};

struct SmoothL1Loss {
  double beta = 1;
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return smooth_l1_loss(x, target, beta, reduction);
  }
};

struct BceWithLogitsLoss {
  Tensor positive_weight = {};
  Reduction reduction = Reduction::mean;
  Tensor operator()(const Tensor& x, const Tensor& target) const {
    return bce_with_logits(x, target, positive_weight, reduction);
  }
};

}  // namespace weft::nn
