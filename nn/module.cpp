#include "nn/module.h"

#include "autograd/grad_mode.h"
#include "core/profiler.h"
#include "nn/deferred.h"
#include "nn/detail/recipe.h"
#include "ops/copy.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <typeinfo>
#include <unordered_map>

namespace weft::nn {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace

Module::~Module() = default;

std::string Module::type() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : typeid(*this).name();
  // The last "::" outside of template arguments and of a function's parameter list.
  const size_t arguments = name.rfind('<') == std::string::npos ? name.size() : name.find('<');
  const size_t colons = name.rfind("::", arguments);
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

Tensor Module::operator()(const Tensor& x) {
  if (pre_hooks_.empty() && hooks_.empty()) {
    const ProfileLayer layer(this);
    return forward(x);
  }
  return with_hooks(x, [this](const Tensor& input) { return forward(input); });
}

Tensor Module::with_hooks(const Tensor& x, const Function<Tensor(const Tensor&)>& forward) {
  const ProfileLayer layer(this);
  // Hooks may remove themselves: walk copies.
  Tensor input = x;
  for (const auto& [id, hook] : std::vector(pre_hooks_)) {
    if (Tensor replaced = hook(*this, input); replaced.defined()) input = std::move(replaced);
  }
  Tensor output = forward(input);
  for (const auto& [id, hook] : std::vector(hooks_)) {
    if (Tensor replaced = hook(*this, input, output); replaced.defined())
      output = std::move(replaced);
  }
  return output;
}

HookId Module::add_forward_pre_hook(ForwardPreHook hook) {
  pre_hooks_.emplace_back(next_hook_, std::move(hook));
  return {next_hook_++};
}

HookId Module::add_forward_hook(ForwardHook hook) {
  hooks_.emplace_back(next_hook_, std::move(hook));
  return {next_hook_++};
}

void Module::remove_hook(HookId hook) {
  const auto is_it = [&](const auto& entry) { return entry.first == hook.value; };
  std::erase_if(pre_hooks_, is_it);
  std::erase_if(hooks_, is_it);
}

// ---- registry ----

void Module::check_name(const std::string& name) const {
  WEFT_CHECK(!name.empty() && name.find('.') == std::string::npos, "module",
             "expected a name without dots, got \"", name, "\" in ", type());
  const bool taken = std::any_of(tensors_.begin(), tensors_.end(),
                                 [&](const Slot& slot) { return slot.name == name; }) ||
                     std::any_of(parts_.begin(), parts_.end(),
                                 [&](const auto& part) { return part.first == name; });
  WEFT_CHECK(!taken, "module", "expected a name not yet used in ", type(), ", got \"", name,
             "\" again");
}

void Module::add(std::string name, Module& part) {
  check_name(name);
  for (const auto& [path, module] : part.named_modules()) {
    WEFT_CHECK(module != this, "module", "expected a part that does not contain ", type(),
               ", got \"", name, "\", which does");
  }
  parts_.emplace_back(std::move(name), &part);
}

void Module::add_parameter(std::string name, Tensor& parameter) {
  check_name(name);
  if (parameter.defined()) {
    WEFT_CHECK(parameter.is_leaf(), "module", "expected a leaf as parameter \"", name, "\" of ",
               type(), ", got an operator's result");
    if (is_floating(parameter.dtype())) parameter.set_requires_grad();
    parameter.storage()->recharge(Category::parameters);
  }
  tensors_.push_back({std::move(name), &parameter, true});
}

void Module::add_buffer(std::string name, Tensor& buffer) {
  check_name(name);
  if (buffer.defined()) buffer.storage()->recharge(Category::parameters);
  tensors_.push_back({std::move(name), &buffer, false});
}

void Module::collect(const std::string& prefix, std::vector<Visit>& visits) const {
  for (const bool parameters : {true, false}) {
    for (const Slot& slot : tensors_) {
      if (slot.is_parameter == parameters && slot.tensor->defined()) {
        visits.push_back({joined(prefix, slot.name), *slot.tensor, parameters, {}});
      }
    }
  }
  for (const auto& [name, part] : parts_)
    part->collect(joined(prefix, name), visits);
}

std::vector<Module::Visit> Module::walk() const {
  std::vector<Visit> visits;
  collect({}, visits);
  std::unordered_map<const TensorBody*, size_t> seen;
  for (size_t i = 0; i < visits.size(); ++i) {
    const auto [first, is_new] = seen.emplace(visits[i].tensor.body(), i);
    if (!is_new) visits[i].first = visits[first->second].name;
  }
  return visits;
}

std::vector<NamedTensor> Module::named_parameters() const {
  std::vector<NamedTensor> result;
  for (const Visit& visit : walk()) {
    if (visit.is_parameter && visit.first.empty()) result.push_back({visit.name, visit.tensor});
  }
  return result;
}

std::vector<NamedTensor> Module::named_buffers() const {
  std::vector<NamedTensor> result;
  for (const Visit& visit : walk()) {
    if (!visit.is_parameter && visit.first.empty()) result.push_back({visit.name, visit.tensor});
  }
  return result;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (const auto& [name, tensor] : named_parameters())
    result.push_back(tensor);
  return result;
}

std::vector<std::pair<std::string, std::string>> Module::aliases() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Visit& visit : walk()) {
    if (!visit.first.empty()) result.emplace_back(visit.name, visit.first);
  }
  return result;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, tensor] : named_parameters())
    count += tensor.numel();
  return count;
}

void Module::collect_modules(const std::string& prefix,
                             std::vector<std::pair<std::string, Module*>>& modules) {
  modules.emplace_back(prefix, this);
  for (const auto& [name, part] : parts_)
    part->collect_modules(joined(prefix, name), modules);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> modules;
  collect_modules({}, modules);
  return modules;
}

// ---- modes ----

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, part] : parts_)
    part->train(on);
}

void Module::zero_grad(bool set_to_none) {
  for (const auto& [name, parameter] : named_parameters()) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      parameter.set_grad({});
    } else {
      const NoGrad no_grad;
      const float zero = 0;
      copy_(grad, from_values(std::span(&zero, 1), {}));
    }
  }
}

void Module::to(DType dtype, bool buffers) {
  WEFT_CHECK(weft::is_floating(dtype), "module.to", "expected a floating dtype, got ", dtype);
  const NoGrad no_grad;
  struct Change {
    Tensor tensor, values, grad;
  };
  std::vector<Change> changes;  // all memory first: it may run out
  for (const Visit& visit : walk()) {
    const Tensor& tensor = visit.tensor;
    const bool asked = (visit.is_parameter || buffers) && is_floating(tensor.dtype());
    if (!asked || !visit.first.empty() || tensor.dtype() == dtype) continue;
    if (is_deferred(tensor)) {
      detail::defer_conversion(tensor, dtype);
      continue;
    }
    Change change{tensor, {}, {}};
    {
      const CategoryScope scope(Category::parameters);
      change.values = weft::to(tensor.detach(), dtype);
    }
    if (const Tensor grad = tensor.grad(); grad.defined()) {
      const CategoryScope scope(Category::gradients);
      change.grad = weft::to(grad, dtype);
    }
    changes.push_back(std::move(change));
  }
  for (const Change& change : changes) {
    // The body takes over the converted memory: whoever holds the tensor sees the change. Its
    // version goes on rising, so that a value saved for backward is known to be stale.
    TensorBody& body = *change.tensor.body();
    const TensorBody& from = *change.values.body();
    for (uint32_t version = 0; version <= change.tensor.version(); ++version)
      from.storage->bump_version();
    body.storage = from.storage;
    body.data = from.data;
    body.strides = from.strides;
    body.contiguous = from.contiguous;
    body.dtype = dtype;
    change.tensor.set_grad(change.grad);
  }
}

// ---- state ----

std::vector<NamedTensor> Module::state_dict() const {
  std::vector<NamedTensor> result;
  for (const Visit& visit : walk()) {
    if (visit.first.empty()) result.push_back({visit.name, visit.tensor.detach()});
  }
  return result;
}

namespace {

bool same_values(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a);
  const Tensor y = contiguous(b);
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) == 0;
}

}  // namespace

void Module::load_state_dict(std::span<const NamedTensor> state, bool strict) {
  std::vector<Given> all;
  for (const auto& [name, tensor] : state)
    all.push_back({name, tensor.dtype(), tensor.shape(), [value = tensor] { return value; }});
  take_state(all, strict);
}

void Module::take_state(const std::vector<Given>& state, bool strict) {
  const NoGrad no_grad;
  std::unordered_map<std::string_view, const Given*> given;
  std::string wrong;
  const auto complain = [&](std::initializer_list<Piece> pieces) {
    wrong += "\n  " + concat(pieces);
  };
  for (const Given& each : state) {
    if (!given.emplace(each.name, &each).second) complain({"twice: ", each.name});
  }

  const std::vector<Visit> visits = walk();
  // By the tensor that takes the values; null where they do not fit.
  std::unordered_map<const TensorBody*, const Given*> sources;
  for (const Visit& visit : visits) {
    const auto found = given.find(visit.name);
    if (found == given.end()) continue;
    const Given& values = *found->second;
    const Tensor& target = visit.tensor;
    if (values.shape != target.shape() || values.dtype != target.dtype()) {
      complain({visit.name, ": expected ", target.dtype(), target.shape(), ", got ", values.dtype,
                values.shape});
      sources.emplace(target.body(), nullptr);
    } else {
      const auto [before, is_new] = sources.emplace(target.body(), &values);
      const Given* other = before->second;
      if (!is_new && other && !same_values(other->values(), values.values())) {
        complain({visit.name, ": expected the values of ", other->name, ", which it is tied to"});
      }
    }
    given.erase(found);
  }
  if (strict) {
    for (const Visit& visit : visits) {
      if (visit.first.empty() && !sources.count(visit.tensor.body()))
        complain({"missing: ", visit.name});
    }
    for (const Given& each : state) {
      if (given.count(each.name)) complain({"unexpected: ", each.name});
    }
  }
  WEFT_CHECK(wrong.empty(), "load_state_dict", "expected the state of ", type(), ", got", wrong);
  for (const Visit& visit : visits) {
    const auto source = sources.find(visit.tensor.body());
    if (!visit.first.empty() || source == sources.end()) continue;
    const Given& from = *source->second;
    if (is_deferred(visit.tensor)) {
      detail::defer_values(visit.tensor, [values = from.values](const Tensor& to) {
        const NoGrad still;
        copy_(to, values());
      });
    } else {
      copy_(visit.tensor, from.values());
    }
  }
}

void Module::save(const std::string& path,
                  std::span<const std::pair<std::string, std::string>> metadata) const {
  std::vector<std::pair<std::string, std::string>> all(metadata.begin(), metadata.end());
  for (auto& [name, first] : aliases())
    all.emplace_back("alias." + name, first);
  save_safetensors(path, state_dict(), all);
}

void Module::load(const std::string& path, bool strict) {
  const auto file = make_ref<SafetensorsFile>(path);
  std::vector<Given> all;
  for (size_t i = 0; i < file->entries().size(); ++i) {
    const auto& [name, dtype, shape] = file->entries()[i];
    all.push_back({name, dtype, shape, [file, i] { return file->read(i); }});
  }
  take_state(all, strict);
}

}  // namespace weft::nn
