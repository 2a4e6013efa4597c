// Units whose parameters rest sharded: their full values come before a unit's forward and backward,
// and go after.
//
// A unit's module calls before_forward and after_forward by its hooks; a node that after_forward
// records on the module's output calls before_backward when the gradient arrives there. The next
// unit in order is gathered ahead, as far as the bound on gathered units allows.
#pragma once

#include "dist/detail/flat.h"
#include "nn/module.h"

#include <memory>

namespace weft::dist::detail {

struct Unit {
  std::string name;
  nn::Module* module = nullptr;  // whose forward it serves; null for size buckets
  std::vector<std::unique_ptr<Flat>> flats = {};

  // The gatherer's notes.
  enum class State : uint8_t { dropped, coming, here };
  State state = State::dropped;
  std::vector<Handle> handles = {};
  // Numbers of its forwards in this shard: of the first, and of the one that ran or runs last.
  int64_t first_call = -1;
  int64_t last_call = -1;
};

class Gatherer {
 public:
  struct Options {
    int64_t max_gathered = 2;  // the unit at work and those gathered ahead of it
    bool prefetch = true;
    bool reshard_after_forward = true;
  };
  // Installs hooks on the modules of the units, which must outlive the gatherer.
  Gatherer(const Mesh& mesh, std::span<const std::unique_ptr<Unit>> units, Options options);
  ~Gatherer();
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Drops whatever is still gathered.
  void end_shard();
  // Gathers all units, and keeps them however often the model runs, until release_all(); all but
  // what has masters, which are shown in place of it.
  void hold_all();
  void release_all() noexcept;

 private:
  // Waits for what is under way; errors of it come again with the next call.
  void drop(Unit& unit) noexcept;
  void before_forward(Unit& unit);
  Tensor after_forward(Unit& unit, const Tensor& output);
  // Of the unit's forward number `call`.
  void before_backward(Unit& unit, int64_t call);
  void start(Unit& unit);
  void need(Unit& unit);
  bool comes(const Flat& flat) const { return !holding_ || !flat.has_masters(); }
  void prefetch(const Unit& unit, int step);

  const Mesh& mesh_;
  Options options_;
  std::vector<Unit*> units_;
  std::vector<std::pair<Unit*, HookId>> pre_hooks_;
  std::vector<std::pair<Unit*, HookId>> hooks_;
  std::vector<Unit*> order_;    // of the last forward
  std::vector<Unit*> calling_;  // of the forward that runs
  int64_t calls_ = 0;
  bool holding_ = false;
};

}  // namespace weft::dist::detail
