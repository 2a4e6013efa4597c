// What an optimizer is given: tensors with the names that its errors and its saved state use.
#pragma once

#include "core/safetensors.h"
#include "nn/module.h"
#include "optim/sharding.h"

#include <memory>
#include <string>
#include <vector>

namespace weft::optim {

class Parameters {
 public:
  // A model's own, under their names: what one usually passes.
  Parameters(const nn::Module& model) : list_(model.named_parameters()) {}
  Parameters(std::vector<NamedTensor> named) : list_(std::move(named)) {}
  // This rank's parts of a model that is spread over ranks.
  Parameters(std::vector<NamedTensor> named, std::shared_ptr<Sharding> sharding)
      : list_(std::move(named)), sharding_(std::move(sharding)) {}
  // Named by position: "0", "1", …
  Parameters(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors)
      list_.push_back({std::to_string(list_.size()), tensor});
  }

  const std::vector<NamedTensor>& list() const { return list_; }
  // Null on parameters that are whole.
  const std::shared_ptr<Sharding>& sharding() const { return sharding_; }

 private:
  std::vector<NamedTensor> list_;
  std::shared_ptr<Sharding> sharding_;
};

}  // namespace weft::optim
