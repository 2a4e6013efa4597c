#include "autograd/leaf.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"

namespace weft {
namespace {

void check_leaf(const char* op, const Tensor& leaf) {
  WEFT_CHECK(leaf.defined() && leaf.is_leaf() && leaf.requires_grad(), op,
             "expected a leaf tensor that requires a gradient, got ",
             !leaf.defined()  ? "an undefined tensor"
             : leaf.is_leaf() ? "a leaf that does not"
                              : "an operator's result");
}

}  // namespace

LeafState& LeafState::of(TensorBody& leaf) {
  if (!leaf.leaf) leaf.leaf = make_ref<LeafState>();
  return static_cast<LeafState&>(*leaf.leaf);
}

void LeafState::receive(const Tensor& leaf, Tensor gradient) {
  // Hooks may remove themselves: walk a copy.
  for (const auto& [id, hook] : std::vector(grad_hooks)) {
    Tensor replaced = hook(gradient);
    if (!replaced.defined()) continue;
    WEFT_CHECK(replaced.shape() == leaf.shape() && replaced.dtype() == leaf.dtype(), "grad_hook",
               "expected a gradient of shape ", leaf.shape(), " and dtype ", leaf.dtype(), ", got ",
               replaced.shape(), " and ", replaced.dtype());
    gradient = std::move(replaced);
  }
  const bool exclusive = gradient.body()->use_count() == 1 &&
                         gradient.storage()->use_count() == 1 &&
                         gradient.storage()->bytes() == gradient.bytes();
  // Optimizers step over parameter and gradient as flat runs: both have one layout.
  const bool same_layout =
      gradient.strides() == leaf.strides() || (gradient.is_contiguous() && leaf.is_contiguous());
  if (grad.defined() && grad.is_dense()) {
    add_into(grad, gradient);  // in place: it may be a view of a flat buffer
  } else if (grad.defined()) {
    const CategoryScope scope(Category::gradients);
    grad = accumulate(std::move(grad), std::move(gradient));
  } else if (home) {
    Tensor place = home();
    WEFT_CHECK(place.shape() == leaf.shape() && place.dtype() == leaf.dtype(), "grad_home",
               "expected a home of shape ", leaf.shape(), " and dtype ", leaf.dtype(), ", got ",
               place.shape(), " and ", place.dtype());
    const bool there = place.raw() == gradient.raw() && place.strides() == gradient.strides();
    if (!there) copy_into(place, gradient);
    grad = std::move(place);
  } else if (exclusive && same_layout) {
    gradient.storage()->recharge(Category::gradients);
    grad = std::move(gradient);
  } else {
    const CategoryScope scope(Category::gradients);
    grad = copy_in_layout_of(leaf, gradient);
  }
  for (const auto& [id, hook] : std::vector(accumulated_hooks))
    hook(leaf);
}

HookId add_grad_hook(const Tensor& leaf, GradHook hook) {
  check_leaf("add_grad_hook", leaf);
  LeafState& state = LeafState::of(*leaf.body());
  state.grad_hooks.emplace_back(state.next_hook, std::move(hook));
  return {state.next_hook++};
}

HookId add_accumulated_hook(const Tensor& leaf, AccumulatedHook hook) {
  check_leaf("add_accumulated_hook", leaf);
  LeafState& state = LeafState::of(*leaf.body());
  state.accumulated_hooks.emplace_back(state.next_hook, std::move(hook));
  return {state.next_hook++};
}

void set_grad_home(const Tensor& leaf, GradHome home) {
  check_leaf("set_grad_home", leaf);
  LeafState::of(*leaf.body()).home = std::move(home);
}

void remove_hook(const Tensor& leaf, HookId hook) {
  LeafState& state = LeafState::of(*leaf.body());
  const auto is_it = [&](const auto& entry) { return entry.first == hook.value; };
  std::erase_if(state.grad_hooks, is_it);
  std::erase_if(state.accumulated_hooks, is_it);
}

const Tensor& Tensor::set_requires_grad(bool value) const {
  WEFT_CHECK(is_leaf(), "set_requires_grad",
             "expected a leaf, got the result of an operator; detach() it first");
  WEFT_CHECK(!value || is_floating(dtype()), "set_requires_grad", "expected a floating dtype, got ",
             dtype());
  body_->requires_grad = value;
  return *this;
}

Tensor Tensor::grad() const {
  WEFT_CHECK(is_leaf(), "grad",
             "expected a leaf, got the result of an operator: only leaves keep a gradient");
  return body_->leaf ? LeafState::of(*body_).grad : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  WEFT_CHECK(is_leaf(), "set_grad", "expected a leaf, got the result of an operator");
  WEFT_CHECK(!grad.defined() || (grad.shape() == shape() && grad.dtype() == dtype()), "set_grad",
             "expected a gradient of shape ", shape(), " and dtype ", dtype(), ", got ",
             grad.shape(), " and ", grad.dtype());
  if (grad.defined() || body_->leaf) LeafState::of(*body_).grad = grad;
}

void Tensor::backward() const {
  weft::backward(*this);
}

}  // namespace weft
