#include "dist/detail/checkpoint_load.h"

#include "autograd/engine.h"
#include "dist/detail/snapshot.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace weft::dist::detail {
namespace {

constexpr std::string_view kModel = "model.";
constexpr std::string_view kTensors = "tensors.";
constexpr std::string_view kOptimizer = "optimizer.";
constexpr std::string_view kEma = "ema.";

Tensor integer(int64_t value) {
  return from_values(std::span<const int64_t>(&value, 1), {});
}

}  // namespace

CheckpointLoad::CheckpointLoad(const CheckpointParts& parts, CheckpointReader& reader)
    : parts_(parts), reader_(reader) {
  plan_model();
  if (parts.ema) plan_ema();
  if (parts.optimizer) plan_optimizer();
  if (wrong_.empty()) return;
  throw Error(concat({"[checkpoint] ", reader.path(),
                      ": expected the state of this model and optimizer, got", wrong_}));
}

// Notes that `piece` is to come from the checkpoint; null, with a complaint, if it cannot.
CheckpointLoad::Target* CheckpointLoad::add(std::vector<Target>& targets, Piece piece) {
  const StoredTensor* stored = reader_.manifest().find(piece.name);
  if (!stored) {
    wrong_ += concat({"\n  missing: ", piece.name, " ", piece.dtype, piece.shape});
    return nullptr;
  }
  if (stored->dtype != piece.dtype || stored->shape != piece.shape) {
    wrong_ += concat({"\n  ", piece.name, ": expected ", piece.dtype, piece.shape, ", got ",
                      stored->dtype, stored->shape});
    return nullptr;
  }
  targets.push_back({std::move(piece), stored, {}});
  return &targets.back();
}

void CheckpointLoad::plan_model() {
  // All names that the whole model has, whichever this rank holds a piece of.
  std::set<std::string> known;
  for (const auto& [name, tensor] : parts_.model.named_parameters()) {
    known.insert("model." + name);
    // Of parameters that this rank holds nothing of, at least the shape must be right.
    const StoredTensor* stored = reader_.manifest().find("model." + name);
    if (!stored) {
      wrong_ += concat({"\n  missing: model.", name, " ", tensor.dtype(), tensor.shape()});
    } else if (stored->shape != tensor.shape()) {
      wrong_ += concat({"\n  model.", name, ": expected ", tensor.dtype(), tensor.shape(), ", got ",
                        stored->dtype, stored->shape});
    } else {
      known.insert(stored->name);
    }
  }
  if (wrong_.empty()) {
    for (Piece& piece : model_pieces(parts_)) {
      known.insert(piece.name);
      if (const Target* target = add(model_, std::move(piece))) known.insert(target->stored->name);
    }
  } else {
    for (const auto& [name, tensor] : parts_.model.named_buffers())
      known.insert("model." + name);
    for (const auto& [name, tensor] : parts_.tensors)
      known.insert("tensors." + name);
  }
  for (const StoredTensor& stored : reader_.manifest().tensors) {
    const bool ours = stored.name.starts_with(kModel) || stored.name.starts_with(kTensors);
    if (ours && known.count(stored.name) == 0) wrong_ += concat({"\n  unexpected: ", stored.name});
  }
}

void CheckpointLoad::plan_ema() {
  for (const optim::ShardedParameter& parameter : parts_.parallel.parameters().sharding()->all()) {
    if (parameter.count == 0) continue;
    const std::string name = concat({kEma, stored_name_of(parameter.name)});
    if (!reader_.manifest().find(name)) wrong_ += concat({"\n  missing: ", name});
  }
  if (!wrong_.empty()) return;
  for (Piece& piece : ema_pieces(parts_)) {
    piece.name = concat({kEma, stored_name_of(piece.name.substr(kEma.size()))});
    add(model_, std::move(piece));
  }
}

// A parameter's name in the checkpoint, which may know it by another where it is tied.
std::string CheckpointLoad::stored_name_of(const std::string& parameter) const {
  const StoredTensor* stored = reader_.manifest().find(concat({kModel, parameter}));
  return stored ? stored->name.substr(kModel.size()) : parameter;
}

void CheckpointLoad::plan_optimizer() {
  const Manifest& manifest = reader_.manifest();
  if (!manifest.find("optimizer.step")) {
    wrong_ += "\n  missing: optimizer.step, and with it all state of the optimizer";
    return;
  }
  // The names of state tensors by parameter: "optimizer.STATE.NAME".
  std::map<std::string, std::vector<std::string>, std::less<>> states;
  for (const StoredTensor& stored : manifest.tensors) {
    if (!stored.name.starts_with(kOptimizer)) continue;
    const size_t dot = stored.name.find('.', kOptimizer.size());
    if (dot != std::string::npos)
      states[stored.name.substr(dot + 1)].push_back(
          stored.name.substr(kOptimizer.size(), dot - kOptimizer.size()));
  }
  std::set<std::string, std::less<>> stepped;
  for (const auto& [key, tensor] : parts_.optimizer->state_dict()) {
    if (key.starts_with("step.")) stepped.insert(key.substr(5));
  }
  state_.push_back({"step", integer(0)});
  Piece step;
  step.name = "optimizer.step";
  step.dtype = i64;
  step.count = 1;
  if (Target* const target = add(optimizer_, std::move(step)))
    target->values = state_.back().tensor;
  // What no rank steps cannot be loaded by any.
  std::set<std::string> trained;
  for (const optim::ShardedParameter& parameter : parts_.parallel.parameters().sharding()->all())
    trained.insert(stored_name_of(parameter.name));
  for (const auto& [name, kinds] : states) {
    if (trained.count(name) == 0)
      wrong_ += concat({"\n  unexpected: optimizer.", kinds.front(), ".", name});
  }
  for (const SteppedPart& part : stepped_parts(parts_)) {
    const std::string& name = part.parameter.name;
    const std::string stored_name = stored_name_of(name);
    const auto found = states.find(stored_name);
    if (stepped.count(name) == 0) {
      if (found != states.end())
        wrong_ += concat({"\n  unexpected: optimizer.", found->second.front(), ".", name});
      continue;
    }
    const Tensor steps = integer(0);
    state_.push_back({"step." + name, steps});
    if (found == states.end() || part.parameter.count == 0) continue;
    for (const std::string& state : found->second) {
      const bool counts = state == "step";
      Piece piece;
      if (!counts) piece = part.parameter;
      piece.name = concat({"optimizer.", state, ".", stored_name});
      piece.dtype = counts ? i64 : manifest.find(piece.name)->dtype;
      if (counts) piece.count = 1;
      Target* const target = add(optimizer_, std::move(piece));
      if (!target) continue;
      if (counts) {
        target->values = steps;
      } else {
        const CategoryScope scope(Category::optimizer);
        target->values = empty_like(part.part.detach(), target->piece.dtype);
        state_.push_back({concat({state, ".", name}), target->values});
      }
    }
  }
}

void CheckpointLoad::read_in_other_order(const Target& target) {
  const Tensor stored = reader_.read(*target.stored);
  const Tensor like =
      empty_strided(target.piece.shape, strides_of(target.piece.shape, target.piece.order),
                    {.dtype = target.piece.dtype});
  const Tensor whole = copy_in_layout_of(like, stored);
  const int64_t width = size_of(target.piece.dtype);
  std::memcpy(target.values.raw(), whole.raw() + target.piece.begin * width,
              static_cast<size_t>(target.piece.bytes()));
}

void CheckpointLoad::read() {
  std::vector<CheckpointReader::Request> requests;
  for (Target& target : model_) {
    const CategoryScope scope(Category::other);
    target.values = empty({target.piece.count}, {.dtype = target.piece.dtype});
  }
  for (const auto* targets : {&model_, &optimizer_}) {
    for (const Target& target : *targets) {
      if (target.piece.count == 0) continue;
      if (target.piece.order != target.stored->order) {
        read_in_other_order(target);
        continue;
      }
      requests.push_back({target.stored, target.piece.begin,
                          target.piece.begin + target.piece.count, target.values.raw()});
    }
  }
  reader_.read(requests);
}

void CheckpointLoad::prepare() {
  if (parts_.optimizer) give_ = parts_.optimizer->adopt_state_dict(state_);
}

void CheckpointLoad::apply() {
  if (give_) give_();
  give_ = {};
  state_.clear();
  optimizer_.clear();
  std::vector<Copy> copies;
  for (const Target& target : model_) {
    if (target.piece.count == 0) continue;
    copies.push_back({target.piece.data, target.values.raw(), target.piece.bytes()});
    target.piece.memory.bump_version();
  }
  copy_all(copies);
  model_.clear();
  parts_.parallel.held_changed();
}

}  // namespace weft::dist::detail
