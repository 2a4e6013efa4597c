#include "nn/deferred.h"

#include "autograd/grad_mode.h"
#include "autograd/leaf.h"
#include "nn/detail/recipe.h"
#include "ops/copy.h"

#include <utility>

namespace weft::nn {
namespace {

// Kept with the leaf, so that all handles of a tied parameter share it.
struct Recipe final : RefCounted {
  DType first = f32;  // what `fill` writes
  Function<void(const Tensor&)> fill = {};
  std::vector<DType> conversions = {};  // after it
};

bool& deferring_here() {
  thread_local bool on = false;
  return on;
}

Recipe* recipe_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.body()->leaf) return nullptr;
  return static_cast<Recipe*>(LeafState::of(*tensor.body()).recipe.get());
}

}  // namespace

namespace detail {

bool deferring() {
  return deferring_here();
}

Tensor deferred_tensor(const Shape& shape, DType dtype) {
  auto body = make_ref<TensorBody>();
  body->shape = shape;
  body->strides = contiguous_strides(shape);
  body->numel = shape.numel();
  body->dtype = dtype;
  body->storage = Storage::wrap(nullptr, body->numel * size_of(dtype), {});
  const Tensor tensor(std::move(body));
  auto recipe = make_ref<Recipe>();
  recipe->first = dtype;
  LeafState::of(*tensor.body()).recipe = std::move(recipe);
  return tensor;
}

void defer_values(const Tensor& deferred, Function<void(const Tensor&)> fill) {
  Recipe& recipe = *recipe_of(deferred);
  recipe.first = deferred.dtype();
  recipe.fill = std::move(fill);
  recipe.conversions.clear();
}

void defer_conversion(const Tensor& deferred, DType dtype) {
  recipe_of(deferred)->conversions.push_back(dtype);
  TensorBody& body = *deferred.body();
  body.dtype = dtype;
  body.storage = Storage::wrap(nullptr, body.numel * size_of(dtype), {});
}

}  // namespace detail

Deferred::Deferred() : before_(std::exchange(deferring_here(), true)) {}
Deferred::~Deferred() {
  deferring_here() = before_;
}

bool is_deferred(const Tensor& tensor) {
  return recipe_of(tensor) != nullptr;
}

void make_values(const Tensor& deferred, const Tensor& place) {
  const NoGrad no_grad;
  const Recipe* recipe = recipe_of(deferred);
  WEFT_CHECK(recipe && place.shape() == deferred.shape() && place.dtype() == deferred.dtype(),
             "make_values",
             "expected a deferred parameter and a place of its shape and dtype, got ",
             recipe ? "" : "one that has values, ", deferred.dtype(), deferred.shape(), " and ",
             place.dtype(), place.shape());
  const bool in_place = recipe->conversions.empty();
  Tensor values = in_place ? place : empty_like(place, recipe->first);
  if (recipe->fill) recipe->fill(values);
  for (const DType dtype : recipe->conversions)
    values = to(values, dtype);
  if (!in_place) copy_(place, values);
  LeafState::of(*deferred.body()).recipe = nullptr;
}

void forget_values(const Tensor& deferred) {
  if (is_deferred(deferred)) LeafState::of(*deferred.body()).recipe = nullptr;
}

void materialise(const Module& model) {
  const CategoryScope scope(Category::parameters);
  for (const Tensor& parameter : model.parameters()) {
    if (!is_deferred(parameter)) continue;
    const Tensor values = empty(parameter.shape(), parameter.options());
    make_values(parameter, values);
    parameter.body()->storage = values.storage();
    parameter.body()->data = values.body()->data;
  }
}

}  // namespace weft::nn
