// Learning rates as pure functions of the step, and the driver that gives them to an optimizer.
//
//   optim::Scheduler scheduler(optimizer, optim::Sequential{{
//       {optim::LinearWarmup{.lr = 0.4, .steps = 500}, 500}, {optim::Cosine{.lr = 0.4, .steps = 9500}, 9500}}});
//   …  optimizer.step();  scheduler.step();
//
// A schedule is asked for the rate that step 0, 1, 2, … uses, in any order: its only state is that number. Steps
// may be batches or epochs, whichever the caller counts. Past its end a schedule keeps its last rate.
// Each check() throws on values that make no sense; a Schedule calls it when it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/safetensors.h"

namespace weft::optim {

class Optimizer;

// Any of the types below, or any function of the step.
class Schedule {
 public:
  template <class F>
    requires std::is_invocable_r_v<double, const F&, int64_t>
  Schedule(F rate) {
    if constexpr (requires { rate.check(); }) rate.check();
    rate_ = std::move(rate);
  }
  double operator()(int64_t step) const { return rate_(step); }

 private:
  std::function<double(int64_t)> rate_;
};

struct Constant {
  double lr = 0;
  double operator()(int64_t) const { return lr; }
  void check() const;
};

// lr * gamma^floor(step / every)
struct StepDecay {
  double lr = 0;
  int64_t every = 1;
  double gamma = 0.1;
  double operator()(int64_t step) const;
  void check() const;
};

// lr * gamma^(how many milestones are at or before step); milestones rise.
struct MultiStep {
  double lr = 0;
  std::vector<int64_t> milestones;
  double gamma = 0.1;
  double operator()(int64_t step) const;
  void check() const;
};

// lr * gamma^step
struct Exponential {
  double lr = 0;
  double gamma = 0.95;
  double operator()(int64_t step) const;
  void check() const;
};

// Half a cosine from lr at step 0 to `last` at step `steps` (Loshchilov & Hutter 2017, equation 5).
struct Cosine {
  double lr = 0;
  int64_t steps = 1;
  double last = 0;
  double operator()(int64_t step) const;
  void check() const;
};

// first + (lr - first) * (step + 1) / steps, and lr from step `steps` - 1 on: the first step already moves.
struct LinearWarmup {
  double lr = 0;
  int64_t steps = 1;
  double first = 0;
  double operator()(int64_t step) const;
  void check() const;
};

// last + (lr - last) * (1 - step / steps)^power
struct Polynomial {
  double lr = 0;
  int64_t steps = 1;
  double power = 1;
  double last = 0;
  double operator()(int64_t step) const;
  void check() const;
};

// One cycle (Smith & Topin 2018) as PyTorch shapes it: half a cosine from lr / start_factor up to lr over the first
// `rise` of the steps, then another down to lr / start_factor / end_factor at step `steps` - 1.
struct OneCycle {
  double lr = 0;
  int64_t steps = 2;
  double rise = 0.3;
  double start_factor = 25;
  double end_factor = 1e4;
  double operator()(int64_t step) const;
  void check() const;
};

// One schedule after another, each for its number of steps and counted from its own step 0; the last goes on.
struct Sequential {
  struct Part {
    Schedule schedule;
    int64_t steps;
  };
  std::vector<Part> parts;
  double operator()(int64_t step) const;
  void check() const;
};

// Sets the rates of an optimizer's groups: those of step 0 when it is made. The optimizer must outlive it.
class Scheduler {
 public:
  // One rate for every group.
  Scheduler(Optimizer& optimizer, Schedule schedule);
  // A schedule for each group.
  Scheduler(Optimizer& optimizer, std::vector<Schedule> schedules);

  // Sets the rates of the next step.
  void step() { seek(position_ + 1); }
  // The step whose rates are set.
  int64_t position() const { return position_; }
  // Goes to any step: what resuming needs.
  void seek(int64_t step);

  // The position as "schedule.step".
  std::vector<NamedTensor> state_dict() const;
  void load_state_dict(std::span<const NamedTensor> state);

 private:
  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;
  int64_t position_ = 0;
};

}  // namespace weft::optim
