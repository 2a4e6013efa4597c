// The functions of OptimizerOf. A rule's own source includes this and instantiates them; everybody
// else sees declarations, so that programs do not compile an optimizer each.
#pragma once

#include "optim/optimizer.h"

namespace weft::optim {

template <class Rule>
concept AdaptiveRule = requires(const typename Rule::Options& options) {
  Rule::adapts(options, 1);
};

template <class Rule>
OptimizerOf<Rule>::OptimizerOf(const Parameters& parameters, const Options& options) {
  add_group(parameters, options);
}

template <class Rule>
OptimizerOf<Rule>::OptimizerOf(const std::vector<ParameterGroup<Options>>& groups) {
  for (const auto& group : groups)
    add_group(group.parameters, group.options);
}

template <class Rule>
OptimizerOf<Rule>::~OptimizerOf() = default;

template <class Rule>
void OptimizerOf<Rule>::add_group(const Parameters& parameters, const Options& options) {
  Rule::check(options);
  add_entries(parameters, groups());
  options_.push_back(options);
}

template <class Rule>
auto OptimizerOf<Rule>::options(int64_t group) -> Options& {
  return options_.at(static_cast<size_t>(group));
}

template <class Rule>
int64_t OptimizerOf<Rule>::groups() const {
  return static_cast<int64_t>(options_.size());
}

template <class Rule>
const char* OptimizerOf<Rule>::name() const {
  return Rule::kName;
}

template <class Rule>
double& OptimizerOf<Rule>::lr_of(int64_t group) {
  return options(group).lr;
}

template <class Rule>
std::span<const std::string_view> OptimizerOf<Rule>::state_names(int64_t group) const {
  return Rule::state_names(options_[static_cast<size_t>(group)]);
}

template <class Rule>
void OptimizerOf<Rule>::check_options() const {
  for (const Options& options : options_)
    Rule::check(options);
}

template <class Rule>
void OptimizerOf<Rule>::begin(size_t index, const Entry& entry) {
  if (step_of_.size() <= index) step_of_.resize(index + 1);
  step_of_[index] = Rule::begin(options_[static_cast<size_t>(entry.group)], entry.steps);
}

template <class Rule>
void OptimizerOf<Rule>::update(size_t index, const Run& run) const {
  const auto update_as = [&]<class T>(T* parameter) {
    Rule::template update<T>(step_of_[index], parameter, static_cast<const T*>(run.gradient),
                             run.state, run.count);
  };
  if (run.is_double) {
    update_as(static_cast<double*>(run.parameter));
  } else {
    update_as(static_cast<float*>(run.parameter));
  }
}

template <class Rule>
bool OptimizerOf<Rule>::adaptive() const {
  return AdaptiveRule<Rule>;
}

template <class Rule>
bool OptimizerOf<Rule>::adapts(const Entry& entry) const {
  if constexpr (AdaptiveRule<Rule>)
    return Rule::adapts(options_[static_cast<size_t>(entry.group)], entry.dims);
  return Optimizer::adapts(entry);
}

template <class Rule>
void OptimizerOf<Rule>::direction(size_t index, const Run& run, void* to) const {
  if constexpr (AdaptiveRule<Rule>) {
    const auto direction_as = [&]<class T>(T* out) {
      Rule::template direction<T>(step_of_[index], static_cast<const T*>(run.parameter),
                                  static_cast<const T*>(run.gradient), run.state, run.count, out);
    };
    if (run.is_double) {
      direction_as(static_cast<double*>(to));
    } else {
      direction_as(static_cast<float*>(to));
    }
  }
}

template <class Rule>
void OptimizerOf<Rule>::adapt(size_t index, double parameter_norm, double direction_norm) {
  if constexpr (AdaptiveRule<Rule>) Rule::adapt(step_of_[index], parameter_norm, direction_norm);
}

}  // namespace weft::optim
