// What a leaf keeps: its gradient, and the hooks that distribution builds on.
#pragma once

#include "core/function.h"
#include "core/tensor.h"

#include <utility>
#include <vector>

namespace weft {

// Called with a leaf's summed gradient of one backward, before it is added to grad(). A defined
// result takes its place; it must have the leaf's shape and dtype.
using GradHook = Function<Tensor(const Tensor& gradient)>;
// Called with the leaf once its grad() holds the sum: all of its uses in this backward have been
// counted.
using AccumulatedHook = Function<void(const Tensor& leaf)>;

// Gives the memory that a leaf's gradient lands in: a tensor of the leaf's shape and dtype, such as
// a view of a flat buffer.
using GradHome = Function<Tensor()>;

struct HookId {
  uint64_t value = 0;
};

// Hooks run in the order they were added, on the thread that runs backward; what they throw leaves
// backward.
HookId add_grad_hook(const Tensor& leaf, GradHook hook);
HookId add_accumulated_hook(const Tensor& leaf, AccumulatedHook hook);
// From now on a gradient that comes while the leaf has none is written to home() and stays there,
// as grad(). Asked for once or twice a gradient, with the same answer; an empty function ends it.
void set_grad_home(const Tensor& leaf, GradHome home);
// Removing a hook that is gone does nothing.
void remove_hook(const Tensor& leaf, HookId hook);

class LeafState final : public RefCounted {
 public:
  // The state of `leaf`, made when first asked for.
  static LeafState& of(TensorBody& leaf);

  // Takes the gradient of one finished backward: hooks, sum, hooks.
  void receive(const Tensor& leaf, Tensor gradient);

  // Where the next gradient would be copied to, if nothing looks at it before.
  Tensor room() const { return home && !grad.defined() && grad_hooks.empty() ? home() : Tensor(); }

  Tensor grad;
  GradHome home;
  Ref<RefCounted> recipe;  // of values that are yet to be made (nn/deferred.h)
  std::vector<std::pair<uint64_t, GradHook>> grad_hooks;
  std::vector<std::pair<uint64_t, AccumulatedHook>> accumulated_hooks;
  uint64_t next_hook = 1;
};

}  // namespace weft
