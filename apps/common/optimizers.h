// The optimizers that --optimizer names.
#pragma once

#include "optim/optim.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft::app {

// What they can be told; each takes what it knows, the rest stays as its own header has it.
struct OptimizerChoice {
  std::string name = "sgd";  // one of optimizer_names()
  double lr = 0.1;
  double momentum = 0.9;  // of sgd and lars
  bool nesterov = false;  // of sgd
  double beta2 = 0.999;   // of adam, adamw and lamb
  std::optional<double> weight_decay = {};
  // Whether parameters of fewer than two dims (biases, scales of norms) decay, too; and, for lars
  // and lamb, whether their steps are scaled by norms.
  bool decay_vectors = true;
  bool adapt_vectors = false;
};

// sgd, adam, adamw, lars, lamb
const std::vector<std::string>& optimizer_names();
// Whether `momentum` means anything to it.
bool has_momentum(const std::string& optimizer);

// Where vectors do not decay, they are a group of their own.
std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters,
                                                 const OptimizerChoice& choice);

}  // namespace weft::app
