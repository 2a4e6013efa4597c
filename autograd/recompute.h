// Activation recomputation: a part of the network keeps its inputs instead of its activations, and
// runs again in backward to get them back (Chen et al., "Training deep nets with sublinear memory
// cost", 2016).
#pragma once

#include "core/function.h"
#include "core/tensor.h"

#include <span>

namespace weft {

// f(inputs), with the gradients that calling f directly would give, and the activations in between
// freed.
//
// f is called once now and once in each backward, so what it captures must live until then. It may
// capture leaves (parameters): their gradients and hooks are as if f had been called once.
// Capturing an operator's result that needs a gradient is an error: pass it as an input. Random
// draws in the second call equal those of the first. Layers that change state in their forward ask
// recomputing() and do not change it twice. Calls may be nested. With recording off this is
// f(inputs).
Tensor recompute(const Function<Tensor(std::span<const Tensor>)>& f,
                 std::span<const Tensor> inputs);

// True inside the second call.
bool recomputing();

}  // namespace weft
