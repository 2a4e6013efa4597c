// Dropout (Srivastava et al., JMLR 2014), scaled at training time so that evaluation changes
// nothing.
#pragma once

#include "core/tensor.h"

namespace weft {

// In training, each element is zero with probability p and x / (1 - p) otherwise. Which ones are
// dropped depends on the random state's next key and on the element's logical index alone, so the
// mask is drawn again in backward instead of being kept. p is in [0, 1]; outside training x itself
// is returned and nothing is drawn.
Tensor dropout(const Tensor& x, double p, bool training);

}  // namespace weft
