#include "optim/optimizer.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/convert.h"
#include "optim/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace weft::optim {
namespace {

constexpr size_t kMaxStates = 4;

bool is_16_bit(DType dtype) {
  return dtype == f16 || dtype == bf16;
}

Tensor zero_state(const Tensor& parameter) {
  Tensor state = empty_like(parameter, compute_dtype(parameter.dtype()));
  std::memset(state.raw(), 0, static_cast<size_t>(state.bytes()));
  return state;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  return a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous());
}

// `state` in the layout and compute dtype of `parameter`, which may have been converted since it
// was made.
void follow(Tensor& state, const Tensor& parameter) {
  const DType dtype = compute_dtype(parameter.dtype());
  if (state.dtype() != dtype) state = to(state, dtype);
  if (!same_layout(state, parameter)) state = copy_in_layout_of(parameter, state);
}

// Takes what was written into a 16-bit parameter since its last step into its master. Elements that
// still are the master's rounding keep the master's full precision.
void renew_master(const Tensor& master, const Tensor& parameter) {
  constexpr int64_t kRun = 512;
  std::array<float, kRun> given;
  std::array<float, kRun> rounded;
  std::array<uint16_t, kRun> narrow;
  auto* to = master.data<float>();
  for (int64_t at = 0; at < master.numel(); at += kRun) {
    const int64_t count = std::min(kRun, master.numel() - at);
    auto* bits = reinterpret_cast<std::byte*>(narrow.data());
    weft::detail::load_run(given.data(), parameter.raw() + at * 2, parameter.dtype(), 1, count);
    weft::detail::store_run(bits, parameter.dtype(), 1, to + at, count);
    weft::detail::load_run(rounded.data(), bits, parameter.dtype(), 1, count);
    for (int64_t i = 0; i < count; ++i) {
      const auto j = static_cast<size_t>(i);
      if (rounded[j] != given[j]) to[at + i] = given[j];
    }
  }
}

Tensor integer(int64_t value) {
  return from_values(std::span<const int64_t>(&value, 1), {});
}

}  // namespace

Optimizer::Optimizer() = default;
Optimizer::~Optimizer() = default;

bool Optimizer::adapts(const Entry&) const {
  return false;
}
void Optimizer::direction(size_t, const Run&, void*) const {}
void Optimizer::adapt(size_t, double, double) {}

void Optimizer::add_entries(const Parameters& parameters, int64_t group) {
  std::unordered_set<const TensorBody*> bodies;
  std::unordered_set<std::string> names;
  for (const Entry& entry : entries_) {
    bodies.insert(entry.parameter.body());
    names.insert(entry.name);
  }
  if (const auto& sharding = parameters.sharding();
      sharding && std::find(shardings_.begin(), shardings_.end(), sharding) == shardings_.end()) {
    shardings_.push_back(sharding);
    sharding->optimizer_made();
  }
  if (std::none_of(norms_.begin(), norms_.end(),
                   [&](const Norms& norms) { return norms.sharding == parameters.sharding(); })) {
    Norms& norms = norms_.emplace_back();
    norms.sharding = parameters.sharding();
    if (norms.sharding) {
      for (const ShardedParameter& whole : norms.sharding->all())
        norms.all.insert(norms.all.end(), 2, whole);
    }
  }
  std::vector<Entry> fresh;
  for (const auto& named : parameters.list()) {
    const auto& [given_name, tensor] = named;
    WEFT_CHECK(tensor.defined(), name(), "expected a tensor as parameter ", given_name,
               ", got none");
    WEFT_CHECK(tensor.is_leaf() && is_floating(tensor.dtype()), name(),
               "expected a floating leaf as parameter ", given_name, ", got ",
               tensor.is_leaf() ? "one of " + to_string(tensor.dtype()) : "an operator's result");
    WEFT_CHECK(tensor.is_dense(), name(), "expected a parameter without gaps in memory, got ",
               given_name, " of shape ", tensor.shape(), " and strides ", tensor.strides());
    WEFT_CHECK(bodies.insert(tensor.body()).second, name(), "expected every parameter once, got ",
               given_name, " twice");
    // Positions name the parameters of later groups, too.
    std::string own = given_name;
    const bool by_position = group > 0 && own.find_first_not_of("0123456789") == std::string::npos;
    if (by_position) own = std::to_string(entries_.size() + fresh.size());
    WEFT_CHECK(names.insert(own).second, name(), "expected parameters of different names, got ",
               own, " twice");
    Entry entry;
    entry.name = std::move(own);
    entry.parameter = tensor;
    entry.group = group;
    fresh.push_back(std::move(entry));
  }
  std::vector<Place> places;
  for (size_t i = 0; i < fresh.size(); ++i) {
    places.push_back(place_of(parameters.list()[i], parameters.sharding()));
    fresh[i].dims = norms_[places[i].norms].all[places[i].parameter].dims;
  }
  places_.insert(places_.end(), places.begin(), places.end());
  entries_.insert(entries_.end(), std::make_move_iterator(fresh.begin()),
                  std::make_move_iterator(fresh.end()));
}

Optimizer::Place Optimizer::place_of(const NamedTensor& named, const Ref<Sharding>& sharding) {
  auto at = std::find_if(norms_.begin(), norms_.end(),
                         [&](const Norms& norms) { return norms.sharding == sharding; });
  const Sharding::Place place = sharding ? sharding->place(named.tensor) : Sharding::Place{};
  const auto index = static_cast<size_t>(at - norms_.begin());
  if (sharding) return {index, place.parameter * 2, place.begin};
  const ShardedParameter whole{
      named.name, named.tensor.numel(), {0, named.tensor.numel()}, named.tensor.dims()};
  at->all.insert(at->all.end(), 2, whole);
  return {index, at->all.size() - 2, 0};
}

void Optimizer::check_group(int64_t group) const {
  WEFT_CHECK(group >= 0 && group < groups(), name(), "expected a group in [0, ", groups(),
             "), got ", group);
}

void Optimizer::set_lr(double lr) {
  for (int64_t group = 0; group < groups(); ++group)
    set_lr(group, lr);
}

void Optimizer::set_lr(int64_t group, double lr) {
  check_group(group);
  WEFT_CHECK(lr >= 0, name(), "expected an lr of 0 or more, got ", lr);
  lr_of(group) = lr;
}

void Optimizer::zero_grad(bool set_to_none) {
  for (const Entry& entry : entries_) {
    if (set_to_none) {
      entry.parameter.set_grad({});
      continue;
    }
    const Tensor grad = entry.parameter.grad();
    if (!grad.defined()) continue;
    if (grad.is_dense()) {
      std::memset(grad.raw(), 0, static_cast<size_t>(grad.bytes()));
      grad.bump_version();
    } else {
      const CategoryScope scope(Category::gradients);
      Tensor zeros = empty_like(entry.parameter);
      std::memset(zeros.raw(), 0, static_cast<size_t>(zeros.bytes()));
      entry.parameter.set_grad(zeros);
    }
  }
}

// Makes the entry's state ready for a step; the parameter stays as it is.
void Optimizer::prepare(Entry& entry) {
  const Tensor& parameter = entry.parameter;
  const CategoryScope scope(Category::optimizer);
  const size_t wanted = state_names(entry.group).size();
  if (entry.state.size() != wanted) {  // the first step, or a momentum switched on or off
    std::vector<Tensor> fresh;
    for (size_t i = 0; i < wanted; ++i)
      fresh.push_back(zero_state(parameter));
    entry.state = std::move(fresh);
    entry.steps = 0;
  }
  for (Tensor& state : entry.state)
    follow(state, parameter);
  if (!is_16_bit(parameter.dtype())) {
    entry.master = {};
    return;
  }
  if (!entry.master.defined()) {
    entry.master = to(parameter.detach(), f32);
  } else {
    follow(entry.master, parameter);
    if (entry.master_version != parameter.version()) renew_master(entry.master, parameter);
  }
  entry.master_version = parameter.version();
}

void Optimizer::step() {
  const NoGrad no_grad;
  check_options();
  for (const auto& sharding : shardings_)
    sharding->before_step();
  const ProfileOp profile(name());
  active_.clear();
  blocks_.clear();
  for (size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.parameter.requires_grad()) continue;
    Tensor grad = entry.parameter.grad();
    if (!grad.defined()) continue;
    WEFT_CHECK(grad.dtype() == entry.parameter.dtype() && grad.shape() == entry.parameter.shape(),
               name(), "expected a gradient of shape ", entry.parameter.shape(), " and dtype ",
               entry.parameter.dtype(), " for parameter ", entry.name, ", got ", grad.shape(),
               " and ", grad.dtype());
    if (!same_layout(grad, entry.parameter)) {
      const CategoryScope scope(Category::gradients);
      grad = copy_in_layout_of(entry.parameter, grad);
    }
    prepare(entry);
    begin(index, entry);
    blocks_.add(entry.parameter.numel());
    // The gradient is read; the parameter (its master), and each state, read and written.
    const auto states = static_cast<int64_t>(entry.state.size());
    profile_work(2 * (states + 1) * entry.parameter.numel(),
                 grad.bytes() + (2 * states + 2) * entry.parameter.numel() *
                                    size_of(compute_dtype(entry.parameter.dtype())));
    active_.push_back({index, std::move(grad)});
  }
  if (adaptive()) adapt_all();
  blocks_.parallel(
      [&](size_t run, int64_t first, int64_t last) { update_run(active_[run], first, last); });
  for (const Active& active : active_) {
    Entry& entry = entries_[active.index];
    ++entry.steps;
    entry.parameter.bump_version();
  }
  // Parameters may share a storage, and with it the version.
  for (const Active& active : active_) {
    Entry& entry = entries_[active.index];
    entry.master_version = entry.parameter.version();
  }
  active_.clear();
  ++steps_;
  for (const auto& sharding : shardings_)
    sharding->after_step();
}

// Between begin() and update(): every rank adds the squares of its parts.
void Optimizer::adapt_all() {
  for (const Norms& norms : norms_) {
    std::vector<NormPart> parts;
    std::vector<size_t> parameter_of;
    for (const Active& active : active_) {
      const Entry& entry = entries_[active.index];
      const Place& place = places_[active.index];
      if (&norms_[place.norms] != &norms || !adapts(entry)) continue;
      const Tensor& values = entry.master.defined() ? entry.master : entry.parameter;
      const int64_t count = norms.all[place.parameter].count;
      const int64_t width = size_of(values.dtype());
      parts.push_back({values, place.begin, count});
      parts.push_back({values, place.begin, count,
                       [this, &active, width](int64_t begin, int64_t end, std::byte* to) {
                         each_run(active, begin, end, [&](const Run& run, int64_t at) {
                           direction(active.index, run, to + (at - begin) * width);
                         });
                       }});
      parameter_of.insert(parameter_of.end(), {place.parameter, place.parameter + 1});
    }
    const auto sums = square_sums(norms.all, parts, parameter_of, norms.sharding.get());
    for (const Active& active : active_) {
      const Place& place = places_[active.index];
      if (&norms_[place.norms] != &norms || !adapts(entries_[active.index])) continue;
      adapt(active.index, std::sqrt(sums[place.parameter]), std::sqrt(sums[place.parameter + 1]));
    }
  }
}

// Calls f(run, first element) over elements [begin, end) of one parameter: at once, or in short
// runs of its master with its gradient widened.
template <class F>
void Optimizer::each_run(const Active& active, int64_t begin, int64_t end, const F& f) const {
  const Entry& entry = entries_[active.index];
  const DType dtype = entry.parameter.dtype();
  const int64_t width = size_of(dtype);
  const int64_t state_width = size_of(compute_dtype(dtype));
  std::array<void*, kMaxStates> state{};
  const auto point_at = [&](int64_t at) {
    for (size_t i = 0; i < entry.state.size(); ++i)
      state[i] = entry.state[i].raw() + at * state_width;
  };
  std::byte* parameter = entry.parameter.raw();
  const std::byte* gradient = active.gradient.raw();
  if (!is_16_bit(dtype)) {
    point_at(begin);
    f(Run{parameter + begin * width, gradient + begin * width, state.data(), end - begin,
          dtype == f64},
      begin);
    return;
  }
  constexpr int64_t kRun = 512;
  std::array<float, kRun> wide;
  auto* master = entry.master.data<float>();
  for (int64_t at = begin; at < end; at += kRun) {
    const int64_t count = std::min(kRun, end - at);
    weft::detail::load_run(wide.data(), gradient + at * width, dtype, 1, count);
    point_at(at);
    f(Run{master + at, wide.data(), state.data(), count, false}, at);
  }
}

void Optimizer::update_run(const Active& active, int64_t begin, int64_t end) const {
  const Entry& entry = entries_[active.index];
  each_run(active, begin, end, [&](const Run& run, int64_t at) {
    update(active.index, run);
    if (!entry.master.defined()) return;
    const DType dtype = entry.parameter.dtype();
    weft::detail::store_run(entry.parameter.raw() + at * size_of(dtype), dtype, 1,
                            entry.master.data<float>() + at, run.count);
  });
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Entry& entry : entries_) {
    for (const Tensor& state : entry.state)
      bytes += state.bytes();
    if (entry.master.defined()) bytes += entry.master.bytes();
  }
  return bytes;
}

std::vector<NamedTensor> Optimizer::state_dict() const {
  const CategoryScope scope(Category::optimizer);
  std::vector<NamedTensor> result;
  result.push_back({"step", integer(steps_)});
  for (const Entry& entry : entries_) {
    const auto names = state_names(entry.group);
    // Options that ask for other state than there is, since the last step, have the next one begin
    // anew.
    const bool kept = entry.steps > 0 && entry.state.size() == names.size();
    result.push_back({"step." + entry.name, integer(kept ? entry.steps : 0)});
    if (!kept) continue;
    for (size_t i = 0; i < entry.state.size(); ++i) {
      result.push_back({std::string(names[i]) + "." + entry.name, entry.state[i].detach()});
    }
    if (entry.master.defined()) result.push_back({"master." + entry.name, entry.master.detach()});
  }
  return result;
}

Function<void()> Optimizer::prepare_state(std::span<const NamedTensor> state, bool adopt) {
  const NoGrad no_grad;
  std::unordered_map<std::string_view, const Tensor*> given;
  std::string wrong;
  const auto complain = [&](std::initializer_list<Piece> pieces) {
    wrong += "\n  " + concat(pieces);
  };
  for (const auto& [key, tensor] : state) {
    if (!tensor.defined()) {
      complain({"undefined: ", key});
    } else if (!given.emplace(key, &tensor).second) {
      complain({"twice: ", key});
    }
  }
  // Takes what has this name and is as it must be; null, with a complaint, if there is no such
  // thing.
  const auto take = [&](const std::string& key, const Shape& shape, DType dtype) -> const Tensor* {
    const auto found = given.find(key);
    if (found == given.end()) {
      complain({"missing: ", key});
      return nullptr;
    }
    const Tensor* tensor = found->second;
    given.erase(found);
    if (tensor->shape() == shape && tensor->dtype() == dtype) return tensor;
    complain({key, ": expected ", dtype, shape, ", got ", tensor->dtype(), tensor->shape()});
    return nullptr;
  };

  struct Loaded {
    int64_t steps = 0;
    std::vector<const Tensor*> state;
    const Tensor* master = nullptr;
  };
  std::vector<Loaded> loaded;
  const Tensor* steps = take("step", {}, i64);
  for (const Entry& entry : entries_) {
    Loaded& to = loaded.emplace_back();
    const Tensor* taken = take("step." + entry.name, {}, i64);
    to.steps = taken ? taken->item_int() : 0;
    if (to.steps == 0) continue;  // it has none yet, or is complained about already
    const DType dtype = compute_dtype(entry.parameter.dtype());
    for (const std::string_view state_name : state_names(entry.group)) {
      to.state.push_back(
          take(std::string(state_name) + "." + entry.name, entry.parameter.shape(), dtype));
    }
    if (is_16_bit(entry.parameter.dtype()))
      to.master = take("master." + entry.name, entry.parameter.shape(), f32);
  }
  for (const auto& [key, tensor] : state) {
    if (given.count(key)) complain({"unexpected: ", key});
  }
  WEFT_CHECK(wrong.empty(), name(), "expected the state of this optimizer and its parameters, got",
             wrong);

  const CategoryScope scope(Category::optimizer);
  struct Fresh {
    int64_t steps;
    std::vector<Tensor> state;
    Tensor master;
  };
  std::vector<Fresh> fresh;  // all memory first: it may run out
  const auto taken_over = [adopt](const Tensor& parameter, const Tensor& tensor) {
    return adopt && same_layout(tensor, parameter) ? tensor : copy_in_layout_of(parameter, tensor);
  };
  for (size_t i = 0; i < entries_.size(); ++i) {
    Fresh& to = fresh.emplace_back(Fresh{loaded[i].steps, {}, {}});
    for (const Tensor* tensor : loaded[i].state)
      to.state.push_back(taken_over(entries_[i].parameter, *tensor));
    if (loaded[i].master) to.master = taken_over(entries_[i].parameter, *loaded[i].master);
  }
  return [this, all_steps = steps->item_int(), fresh = std::move(fresh)]() mutable {
    for (size_t i = 0; i < entries_.size(); ++i) {
      Entry& entry = entries_[i];
      entry.steps = fresh[i].steps;
      entry.state = std::move(fresh[i].state);
      entry.master = std::move(fresh[i].master);
      // The parameter may have been loaded before, after, or not at all.
      entry.master_version = -1;
    }
    steps_ = all_steps;
  };
}

}  // namespace weft::optim
