// What an optimizer and gradient clipping must know where each rank steps only a part of a model.
// dist::Parallel implements it; Parameters carry it, so that user code is the same on one rank and
// on many.
#pragma once

#include "core/ref.h"
#include "core/tensor.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::optim {

// A parameter as all ranks know it.
struct ShardedParameter {
  std::string name;
  int64_t count = 0;  // elements of the whole parameter
  // Where ranks' parts of it begin and end, in elements of memory order: 0 = cuts[0] < cuts[1] < …
  // = count. Multiples of kNormGroup, but for the end.
  std::vector<int64_t> cuts = {};
  int dims = 0;  // of the whole parameter: a part of it is flat
};

class Sharding : public RefCounted {
 public:
  // An optimizer was made to step these parameters.
  virtual void optimizer_made() {}
  // Before an optimizer reads gradients and after it has written parameters; called by
  // Optimizer::step().
  virtual void before_step() = 0;
  virtual void after_step() = 0;
  // Between steps, something else has written parameters on every rank: the model computes with
  // them from then on.
  virtual void parameters_changed() = 0;
  // Makes gradients complete (clipping calls it; a second call does nothing).
  virtual void finish_gradients() = 0;
  // All parameters of the model that are trained, in the same order on every rank.
  virtual const std::vector<ShardedParameter>& all() const = 0;
  // Which of them a tensor that this rank was given is a part of, and the element it begins at.
  struct Place {
    size_t parameter = 0;
    int64_t begin = 0;
  };
  virtual Place place(const Tensor& part) const = 0;
  // Sums over the ranks that share the parameters; every value is nonzero on one rank at most.
  virtual void sum(std::span<double> values) = 0;
  virtual void max(std::span<double> values) = 0;
};

}  // namespace weft::optim
