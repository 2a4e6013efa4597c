#include "dist/wrap.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace weft::dist {
namespace {

bool inside(const std::string& name, const std::string& module) {
  return module.empty() || (name.size() > module.size() && name[module.size()] == '.' &&
                            name.compare(0, module.size(), module) == 0);
}

template <class T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// All names of every parameter, by its first.
std::unordered_map<std::string, std::vector<std::string>> names_of(const nn::Module& model) {
  std::unordered_map<std::string, std::vector<std::string>> names;
  for (const auto& [name, tensor] : model.named_parameters())
    names[name].push_back(name);
  for (const auto& [alias, first] : model.aliases())
    names[first].push_back(alias);
  return names;
}

// Modules with at least `least` elements that no chosen module inside them has, innermost first.
void choose_by_size(nn::Module& model, int64_t least, std::vector<std::string>& chosen) {
  auto modules = model.named_modules();
  for (auto it = modules.rbegin(); it != modules.rend(); ++it) {
    const std::string& name = it->first;
    const auto& module = it->second;
    if (name.empty() || contains(chosen, name)) continue;
    int64_t elements = 0;
    for (const auto& [own, tensor] : module->named_parameters()) {
      const std::string full = name + "." + own;
      const bool taken = std::any_of(chosen.begin(), chosen.end(), [&](const std::string& other) {
        return other != name && inside(full, other) && other.size() > name.size();
      });
      if (!taken) elements += tensor.numel();
    }
    if (elements >= least) chosen.push_back(name);
  }
}

bool has_own_parameters(const std::string& name, nn::Module& module) {
  const auto parameters = module.named_parameters();
  return !name.empty() && std::any_of(parameters.begin(), parameters.end(), [](const auto& named) {
    return named.name.find('.') == std::string::npos;
  });
}

}  // namespace

std::vector<UnitParameters> wrap_modules(nn::Module& model, const WrapPolicy& policy) {
  const auto modules = model.named_modules();
  std::vector<std::string> chosen;
  std::unordered_set<std::string> types;
  for (const auto& [name, module] : modules) {
    types.insert(module->type());
    if (name.empty()) continue;
    if (contains(policy.types, module->type()) || contains(policy.names, name) ||
        (policy.every_module && has_own_parameters(name, *module)))
      chosen.push_back(name);
  }
  for (const std::string& type : policy.types)
    WEFT_CHECK(types.count(type), "wrap", "expected the type of a module of ", model.type(),
               ", got \"", type, "\"");
  for (const std::string& name : policy.names)
    WEFT_CHECK(contains(chosen, name), "wrap", "expected the name of a module of ", model.type(),
               ", got \"", name, "\"");
  if (policy.min_parameters > 0) choose_by_size(model, policy.min_parameters, chosen);

  std::vector<UnitParameters> units;
  for (const auto& [name, module] : modules) {
    if (name.empty() || contains(chosen, name))
      units.push_back({name.empty() ? "model" : name, module});
  }
  const auto names = names_of(model);
  for (const auto& [name, tensor] : model.named_parameters()) {
    UnitParameters* innermost = &units.front();
    for (UnitParameters& unit : units) {
      if (&unit == &units.front()) continue;
      const auto& uses = names.at(name);
      const bool all = std::all_of(uses.begin(), uses.end(),
                                   [&](const std::string& use) { return inside(use, unit.name); });
      if (all && (innermost == &units.front() || unit.name.size() > innermost->name.size()))
        innermost = &unit;
    }
    innermost->parameters.push_back({name, tensor});
  }
  std::erase_if(units, [](const UnitParameters& unit) { return unit.parameters.empty(); });
  return units;
}

std::vector<UnitParameters> wrap_buckets(const nn::Module& model, int64_t bytes) {
  WEFT_CHECK(bytes > 0, "bucket_bytes", "expected more than 0, got ", bytes);
  auto parameters = model.named_parameters();
  std::vector<UnitParameters> units;
  int64_t filled = bytes;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (filled >= bytes) {
      units.push_back({"bucket " + std::to_string(units.size())});
      filled = 0;
    }
    filled += it->tensor.bytes();
    units.back().parameters.push_back(*it);
  }
  for (UnitParameters& unit : units)
    std::reverse(unit.parameters.begin(), unit.parameters.end());
  return units;
}

}  // namespace weft::dist
