// Reductions over any dims. The order of every sum depends on the shape alone.
#pragma once

#include "core/tensor.h"

namespace weft {

// Sums the dims that broadcasting `shape` to x's shape would repeat: the adjoint of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace weft
