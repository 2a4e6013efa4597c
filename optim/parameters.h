// What an optimizer is given: tensors with the names that its errors and its saved state use.
#pragma once

#include "core/safetensors.h"
#include "nn/module.h"
#include "optim/sharding.h"

#include <vector>

namespace weft::optim {

class Parameters {
 public:
  // A model's own, under their names: what one usually passes.
  Parameters(const nn::Module& model);
  Parameters(std::vector<NamedTensor> named);
  // This rank's parts of a model that is spread over ranks.
  Parameters(std::vector<NamedTensor> named, Ref<Sharding> sharding);
  // Named by position: "0", "1", …
  Parameters(const std::vector<Tensor>& tensors);

  const std::vector<NamedTensor>& list() const { return list_; }
  // Null on parameters that are whole.
  const Ref<Sharding>& sharding() const { return sharding_; }

 private:
  std::vector<NamedTensor> list_;
  Ref<Sharding> sharding_;
};

}  // namespace weft::optim
