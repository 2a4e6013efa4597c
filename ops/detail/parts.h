// Parts of one tensor that lie in memory as the split along a dim left them. Where gradients of
// parts lie so too, they are the whole's gradient and nothing is put together.
#pragma once

#include "core/tensor.h"

#include <span>

namespace weft::detail {

// The dense tensor whose split along `dim` is `parts`, by where they lie; without history.
// Undefined if they lie otherwise, or if one of them is undefined.
Tensor side_by_side(std::span<const Tensor> parts, int dim);

}  // namespace weft::detail
