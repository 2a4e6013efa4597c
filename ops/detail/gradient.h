// How gradients that are elementwise in themselves are computed: a functor over broadcast inputs.
#pragma once

#include "ops/detail/elementwise.h"

namespace weft::detail {

// f of the inputs, which broadcast to x's shape, in x's shape, dtype and layout.
template <class F, class... Inputs>
Tensor gradient_like(const Tensor& x, const F& f, const Inputs&... inputs) {
  Tensor dx = empty_like(x);
  apply<F, Domain::real>(dx, x.dtype(), f, inputs...);
  return dx;
}

}  // namespace weft::detail
