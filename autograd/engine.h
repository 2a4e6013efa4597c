// Backward: walks the recorded graph from a result to the leaves.
#pragma once

#include "core/tensor.h"

#include <span>
#include <vector>

namespace weft {

struct BackwardOptions {
  // Keep the graph for another backward. Otherwise saved tensors are freed as soon as they have
  // been used.
  bool retain_graph = false;
};

// Accumulates d(root)/d(leaf) into the gradient of every leaf that `root` depends on. `gradient` is
// the gradient of root itself, of its shape and dtype; undefined stands for 1 and needs a
// one-element root.
void backward(const Tensor& root, const Tensor& gradient = {}, BackwardOptions options = {});
// The same for several roots in one walk.
void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients,
              BackwardOptions options = {});

// Returns d(root)/d(leaf) for each of `leaves` (undefined where root does not depend on it) and
// leaves the leaves' own gradients and hooks alone.
std::vector<Tensor> gradients(const Tensor& root, std::span<const Tensor> leaves,
                              const Tensor& gradient = {}, BackwardOptions options = {});

// sum + value, reusing sum's memory when nothing else can see it; a copy of value when sum is
// undefined and value is shared. Defined beside the operators, which this layer cannot see.
Tensor accumulate(Tensor sum, Tensor value);
// sum += value. Defined beside the operators, too.
void add_into(const Tensor& sum, const Tensor& value);
// target = value, elementwise. Defined beside the operators, too.
void copy_into(const Tensor& target, const Tensor& value);
// A dense copy of `value` in the layout of `like`. Defined beside the operators, too.
Tensor copy_in_layout_of(const Tensor& like, const Tensor& value);

}  // namespace weft
