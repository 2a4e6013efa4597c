// Gradient clipping.
#pragma once

#include "optim/parameters.h"

namespace weft::optim {

struct ClipOptions {
  double norm = 2;  // which norm: 2, or infinity for the largest magnitude
  bool error_if_nonfinite =
      false;  // throw, naming a parameter at fault, instead of returning the norm
};

// The norm of all gradients seen as one vector, 0 when there is none; where ranks hold parts of a
// model, of the whole of it, on every rank. Squares are summed in the order of optim/norm.h within
// a parameter, then in a binary tree over parameters in their order: the bits depend on shapes
// alone, not on how many ranks there are.
double grad_norm(const Parameters& parameters, double norm = 2);

// Scales all gradients by max_norm / (norm + 1e-6) where the norm passes max_norm, and returns the
// norm as it was before. A norm that is not finite leaves the gradients alone: skip that step.
double clip_grad_norm(const Parameters& parameters, double max_norm, ClipOptions options = {});

// Limits each element to [-max, max]; NaN stays.
void clip_grad_value(const Parameters& parameters, double max);

// Adds up in a binary tree: halves are split at the largest power of two below their size, so that
// aligned runs of 2^k numbers are subtrees.
double tree_sum(const double* values, int64_t count);

}  // namespace weft::optim
