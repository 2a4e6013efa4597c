// Deferred initialisation: models that are built without memory for their parameters.
//
//   const nn::Deferred deferred;
//   nn::models::Gpt model(options);                                    // shapes only
//   dist::Parallel parallel(model, comm, {.strategy = "fsdp"});        // values, unit by unit
//
// Within the scope, layers note how their parameters would have been initialised, with the keys of
// random_state() that they would have drawn: the values are the same bits as without it.
// dist::Parallel makes them where they are going to rest, so that where parameters rest sharded no
// rank ever holds more than its shard and one unit. Until then a parameter has a shape and a dtype
// (Module::to() may change it) but no values, and reading one is an error. Buffers, and parameters
// that a module makes by other means than nn's layers, have their values at once.
#pragma once

#include "nn/module.h"

namespace weft::nn {

// A scope of the thread that opens it.
class Deferred {
 public:
  Deferred();
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

 private:
  bool before_;
};

// Whether the tensor's values are yet to be made.
bool is_deferred(const Tensor& tensor);
// Makes them in `place`, of the tensor's shape and dtype. The tensor itself stays without memory:
// who calls this points it there.
void make_values(const Tensor& deferred, const Tensor& place);
// Notes that they come from elsewhere, such as another rank.
void forget_values(const Tensor& deferred);
// Gives every parameter of `model` that has none its memory and values: for a model that is used
// without dist::Parallel. When it throws, parameters made so far keep their values.
void materialise(const Module& model);

}  // namespace weft::nn
