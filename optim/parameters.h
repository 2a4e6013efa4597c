// What an optimizer is given: tensors with the names that its errors and its saved state use.
#pragma once

#include "core/safetensors.h"
#include "nn/module.h"

#include <vector>

namespace weft::optim {

class Parameters {
 public:
  // A model's own, under their names: what one usually passes.
  Parameters(const nn::Module& model);
  Parameters(std::vector<NamedTensor> named);
  // Named by position: "0", "1", …
  Parameters(const std::vector<Tensor>& tensors);

  const std::vector<NamedTensor>& list() const { return list_; }

 private:
  std::vector<NamedTensor> list_;
};

}  // namespace weft::optim
