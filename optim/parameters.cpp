#include "optim/parameters.h"

namespace weft::optim {

Parameters::Parameters(const nn::Module& model) : list_(model.named_parameters()) {}

Parameters::Parameters(std::vector<NamedTensor> named) : list_(std::move(named)) {}

Parameters::Parameters(std::vector<NamedTensor> named, Ref<Sharding> sharding)
    : list_(std::move(named)), sharding_(std::move(sharding)) {}

Parameters::Parameters(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors)
    list_.push_back({std::to_string(list_.size()), tensor});
}

}  // namespace weft::optim
