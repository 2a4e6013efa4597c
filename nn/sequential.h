// Modules in a row, owned and named by position: "0", "1", …
//
//   nn::Sequential net;
//   net.add<nn::Linear>(784, 128).add<nn::Relu>().add<nn::Linear>(128, 10);
#pragma once

#include "nn/module.h"

namespace weft::nn {

class Sequential : public Module {
 public:
  Sequential() = default;
  // Takes over parts made elsewhere.
  explicit Sequential(std::vector<std::unique_ptr<Module>> parts) {
    for (auto& part : parts)
      append(std::move(part));
  }

  // Makes an M of these arguments at the end.
  template <class M, class... Args>
  Sequential& add(Args&&... args) {
    return append(std::make_unique<M>(std::forward<Args>(args)...));
  }
  Sequential& append(std::unique_ptr<Module> part) {
    WEFT_CHECK(part != nullptr, "sequential", "expected a module, got none");
    Module::add(std::to_string(owned_.size()), *part);
    owned_.push_back(std::move(part));
    return *this;
  }

  int64_t size() const { return static_cast<int64_t>(owned_.size()); }
  Module& operator[](int64_t index) const {
    WEFT_CHECK(index >= 0 && index < size(), "sequential", "expected an index in [0, ", size(),
               "), got ", index);
    return *owned_[static_cast<size_t>(index)];
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& part : owned_)
      y = (*part)(y);
    return y;
  }

 private:
  std::vector<std::unique_ptr<Module>> owned_;
};

}  // namespace weft::nn
