// Checks an operator's gradient against central differences.
#pragma once

#include "core/function.h"
#include "core/tensor.h"

#include <string>
#include <vector>

namespace weft {

struct GradcheckOptions {
  double step = 1e-6;
  // Allowed |backward - difference|, relative to the larger of 1 and the difference.
  double tolerance = 1e-6;
};

// Compares, for each input that requires a gradient (f64), d(w·f)/d(input) from backward with
//   (w·f(x + step) - w·f(x - step)) / (2 step)
// element by element, where w is a fixed random tensor like f's result. Inputs may be strided or
// broadcast views: backward sees them as they are, the differences are taken on row-major copies,
// and f must agree on both. Random draws inside f are the same in every call, and the caller's
// random state is left as it was.
//
// Returns "" when all agree; otherwise what differs: the input, the element, both values. Throws
// what f throws.
std::string gradcheck(const Function<Tensor(const std::vector<Tensor>&)>& f,
                      const std::vector<Tensor>& inputs, GradcheckOptions options = {});

}  // namespace weft
