#include "nn/sequential.h"

namespace weft::nn {

Sequential::Sequential(std::vector<Ref<Module>> parts) {
  for (Ref<Module>& part : parts)
    append(std::move(part));
}

Sequential& Sequential::append(Ref<Module> part) {
  WEFT_CHECK(part, "sequential", "expected a module, got none");
  Module::add(std::to_string(owned_.size()), *part);
  owned_.push_back(std::move(part));
  return *this;
}

Module& Sequential::operator[](int64_t index) const {
  WEFT_CHECK(index >= 0 && index < size(), "sequential", "expected an index in [0, ", size(),
             "), got ", index);
  return *owned_[static_cast<size_t>(index)];
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const Ref<Module>& part : owned_)
    y = (*part)(y);
  return y;
}

}  // namespace weft::nn
