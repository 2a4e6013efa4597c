#include "apps/common/optimizers.h"

#include <utility>

namespace weft::app {
namespace {

// Dims of each listed parameter's whole, of which it may be a flat part.
int dims_of(const optim::Parameters& parameters, const NamedTensor& named) {
  const auto& sharding = parameters.sharding();
  if (!sharding) return named.tensor.dims();
  return sharding->all()[sharding->place(named.tensor).parameter].dims;
}

template <class Rule>
std::unique_ptr<optim::Optimizer> make(const optim::Parameters& parameters,
                                       const typename Rule::Options& options, bool decay_vectors) {
  using Made = optim::OptimizerOf<Rule>;
  if (decay_vectors) return std::make_unique<Made>(parameters, options);
  std::vector<NamedTensor> matrices;
  std::vector<NamedTensor> vectors;
  for (const NamedTensor& named : parameters.list())
    (dims_of(parameters, named) < 2 ? vectors : matrices).push_back(named);
  typename Rule::Options without = options;
  without.weight_decay = 0;
  using Group = optim::ParameterGroup<typename Rule::Options>;
  return std::make_unique<Made>(std::vector<Group>{
      Group{{std::move(matrices), parameters.sharding()}, options},
      Group{{std::move(vectors), parameters.sharding()}, without},
  });
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adam", "adamw", "lars", "lamb"};
  return names;
}

bool has_momentum(const std::string& optimizer) {
  return optimizer == "sgd" || optimizer == "lars";
}

std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters,
                                                 const OptimizerChoice& c) {
  if (c.name == "sgd") {
    return make<optim::SgdRule>(parameters,
                                {.lr = c.lr,
                                 .momentum = c.momentum,
                                 .weight_decay = c.weight_decay.value_or(0),
                                 .nesterov = c.nesterov},
                                c.decay_vectors);
  }
  if (c.name == "adam" || c.name == "adamw") {
    const optim::AdamOptions adam{.lr = c.lr, .beta2 = c.beta2, .weight_decay = c.weight_decay};
    return c.name == "adam" ? make<optim::AdamRule<false>>(parameters, adam, c.decay_vectors)
                            : make<optim::AdamRule<true>>(parameters, adam, c.decay_vectors);
  }
  if (c.name == "lars") {
    return make<optim::LarsRule>(parameters,
                                 {.lr = c.lr,
                                  .momentum = c.momentum,
                                  .weight_decay = c.weight_decay.value_or(0),
                                  .adapt_vectors = c.adapt_vectors},
                                 c.decay_vectors);
  }
  if (c.name == "lamb") {
    optim::LambOptions lamb{.lr = c.lr, .beta2 = c.beta2, .adapt_vectors = c.adapt_vectors};
    if (c.weight_decay) lamb.weight_decay = *c.weight_decay;
    return make<optim::LambRule>(parameters, lamb, c.decay_vectors);
  }
  throw_error("optimizer", {"expected sgd, adam, adamw, lars or lamb, got ", c.name});
}

}  // namespace weft::app
