#include "dist/detail/gatherer.h"

#include "autograd/recompute.h"
#include "autograd/record.h"
#include "dist/detail/settle.h"
#include "dist/redistribute.h"

#include <algorithm>

namespace weft::dist::detail {

Gatherer::Gatherer(const Mesh& mesh, std::span<const std::unique_ptr<Unit>> units, Options options)
    : mesh_(mesh), options_(options) {
  for (const auto& each : units) {
    Unit* unit = each.get();
    units_.push_back(unit);
    pre_hooks_.emplace_back(
        unit, unit->module->add_forward_pre_hook([this, unit](nn::Module&, const Tensor&) {
          before_forward(*unit);
          return Tensor();
        }));
    hooks_.emplace_back(unit, unit->module->add_forward_hook(
                                  [this, unit](nn::Module&, const Tensor&, const Tensor& output) {
                                    return after_forward(*unit, output);
                                  }));
  }
}

Gatherer::~Gatherer() {
  release_all();
  for (const auto& [unit, hook] : pre_hooks_)
    unit->module->remove_hook(hook);
  for (const auto& [unit, hook] : hooks_)
    unit->module->remove_hook(hook);
}

void Gatherer::start(Unit& unit) {
  if (unit.state != Unit::State::dropped) return;
  unit.state = Unit::State::coming;
  try {
    for (const auto& flat : unit.flats) {
      if (comes(*flat)) flat->take();
    }
    for (const auto& flat : unit.flats) {
      if (comes(*flat))
        unit.handles.push_back(
            mesh_.gather().start(gather_move(flat->shard(), flat->whole(), flat->tag())));
    }
  } catch (...) {
    drop(unit);
    throw;
  }
}

void Gatherer::need(Unit& unit) {
  start(unit);
  if (unit.state == Unit::State::here) return;
  try {
    for (Handle& handle : unit.handles)
      handle.wait();
  } catch (...) {
    drop(unit);  // half gathered is not gathered
    throw;
  }
  unit.handles.clear();
  for (const auto& flat : unit.flats) {
    if (comes(*flat)) flat->point();
  }
  unit.state = Unit::State::here;
}

void Gatherer::drop(Unit& unit) noexcept {
  if (unit.state == Unit::State::dropped) return;
  for (Handle& handle : unit.handles)
    settle(handle);
  unit.handles.clear();
  for (const auto& flat : unit.flats)
    flat->drop();
  unit.state = Unit::State::dropped;
}

void Gatherer::hold_all() {
  holding_ = true;
  for (Unit* unit : units_)
    start(*unit);
  for (Unit* unit : units_)
    need(*unit);
}

void Gatherer::release_all() noexcept {
  holding_ = false;
  for (Unit* unit : units_)
    drop(*unit);
}

// Starts the unit that comes `step` after this one in the last forward's order.
void Gatherer::prefetch(const Unit& unit, int step) {
  if (!options_.prefetch) return;
  const auto ahead = std::count_if(units_.begin(), units_.end(), [](const Unit* other) {
    return other->state == Unit::State::coming;
  });
  if (ahead + 1 >= options_.max_gathered) return;
  const auto at = std::find(order_.begin(), order_.end(), &unit);
  if (at == order_.end()) return;
  const auto index = at - order_.begin() + step;
  if (index >= 0 && index < static_cast<int64_t>(order_.size()))
    start(*order_[static_cast<size_t>(index)]);
}

void Gatherer::before_forward(Unit& unit) {
  if (holding_) return;
  need(unit);
  if (recomputing()) return;
  if (unit.first_call < 0) {
    unit.first_call = calls_;
    calling_.push_back(&unit);
  }
  unit.last_call = calls_++;
  prefetch(unit, 1);
}

Tensor Gatherer::after_forward(Unit& unit, const Tensor& output) {
  if (holding_) return {};
  // A unit that runs again within backward is needed until its gradients are done.
  if (!recomputing() && (options_.reshard_after_forward || !grad_enabled())) drop(unit);
  if (!recording(output)) return {};
  const Tensor out = alias(output, output.shape(), output.strides());
  // Run again within backward, it has the number of its last forward: no unit is dropped too soon.
  const int64_t call = unit.last_call;
  record("unit", out, inputs(output), [this, &unit, call](const Tensor& gradient, Gradients& to) {
    before_backward(unit, call);
    to.set(0, gradient);
  });
  return out;
}

// Nodes run from the latest on, so of the calls that began after this one those that followed it
// have been walked back, and those within it have not begun: units that have no other calls are not
// needed now. What counts is when this call began, not the unit's first one: a unit that is called
// again within another's forward comes here while that one's backward has yet to end.
void Gatherer::before_backward(Unit& unit, int64_t call) {
  for (Unit* other : units_) {
    if (other->first_call > call) drop(*other);
  }
  need(unit);
  prefetch(unit, -1);
}

void Gatherer::end_shard() {
  for (Unit* unit : units_) {
    drop(*unit);
    unit->first_call = unit->last_call = -1;
  }
  if (!calling_.empty()) order_ = std::exchange(calling_, {});
  calls_ = 0;
}

}  // namespace weft::dist::detail
