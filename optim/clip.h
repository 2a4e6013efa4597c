// Gradient clipping.
#pragma once

#include "optim/parameters.h"

namespace weft::optim {

struct ClipOptions {
  double norm = 2;  // which norm: 2, or infinity for the largest magnitude
  bool error_if_nonfinite =
      false;  // throw, naming a parameter at fault, instead of returning the norm
};

// The norm of all gradients seen as one vector, 0 when there is none. Squares are summed in f64:
// eight lanes within each block of Blocks::kSize elements of a parameter in memory order, then a
// binary tree over its blocks, then over parameters in their order. So the bits depend on shapes
// alone.
double grad_norm(const Parameters& parameters, double norm = 2);

// Scales all gradients by max_norm / (norm + 1e-6) where the norm passes max_norm, and returns the
// norm as it was before. A norm that is not finite leaves the gradients alone: skip that step.
double clip_grad_norm(const Parameters& parameters, double max_norm, ClipOptions options = {});

// Limits each element to [-max, max]; NaN stays.
void clip_grad_value(const Parameters& parameters, double max);

// The sum of squares, or the largest magnitude, of `count` elements, summed as a block is above. T
// is a floating element type. NaN gives NaN.
template <class T>
double block_square_sum(const T* values, int64_t count);
template <class T>
double block_max_magnitude(const T* values, int64_t count);
// Adds up in a binary tree: halves are split at the largest power of two below their size, so that
// aligned runs of 2^k numbers are subtrees.
double tree_sum(const double* values, int64_t count);

}  // namespace weft::optim
