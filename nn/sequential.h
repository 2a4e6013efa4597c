// Modules in a row, owned and named by position: "0", "1", …
//
//   nn::Sequential net;
//   net.add<nn::Linear>(784, 128).add<nn::Relu>().add<nn::Linear>(128, 10);
#pragma once

#include "nn/module.h"

#include <utility>
#include <vector>

namespace weft::nn {

class Sequential : public Module {
 public:
  Sequential() = default;
  // Parts made elsewhere.
  explicit Sequential(std::vector<Ref<Module>> parts);

  // Makes an M of these arguments at the end.
  template <class M, class... Args>
  Sequential& add(Args&&... args) {
    return append(make_ref<M>(std::forward<Args>(args)...));
  }
  Sequential& append(Ref<Module> part);

  int64_t size() const { return static_cast<int64_t>(owned_.size()); }
  Module& operator[](int64_t index) const;

  Tensor forward(const Tensor& x) override;

 private:
  std::vector<Ref<Module>> owned_;
};

}  // namespace weft::nn
