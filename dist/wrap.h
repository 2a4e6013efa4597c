// Which parameters travel together.
#pragma once

#include "nn/module.h"

#include <string>
#include <vector>

namespace weft::dist {

// Which modules become units of their own where parameters rest sharded: those that any of the
// rules names. The whole model is always one, for what no other unit takes.
struct WrapPolicy {
  std::vector<std::string> types = {};  // nn::Module::type(): "TransformerBlock"
  std::vector<std::string> names = {};  // full names: "blocks.0"
  // Innermost modules with at least so many elements that no unit inside them has; 0: no such rule.
  int64_t min_parameters = 0;
  // Every module that has parameters of its own.
  bool every_module = false;
};

// Parameters of one unit, in the model's order.
struct UnitParameters {
  std::string name;
  nn::Module* module = nullptr;  // null for buckets
  std::vector<NamedTensor> parameters = {};
};

// Every parameter in exactly one unit: the innermost that contains all of its uses, so that a tied
// parameter lies where all of its modules can see it. Units come in the order of named_modules(),
// the whole model ("model") first; those without parameters are left out. Throws where the policy
// names a type or a module that is not there.
std::vector<UnitParameters> wrap_modules(nn::Module& model, const WrapPolicy& policy);

// Buckets of at least `bytes` (but for the last), from the last parameter to the first: the order
// in which gradients become ready.
std::vector<UnitParameters> wrap_buckets(const nn::Module& model, int64_t bytes);

}  // namespace weft::dist
