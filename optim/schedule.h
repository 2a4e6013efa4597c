// Learning rates as pure functions of the step.
//
//   const optim::Schedule rate = optim::sequential({{optim::linear_warmup(0.4, 500), 500},
//   {optim::cosine(0.4, 9500), 9500}}); optimizer.set_lr(rate(step));      // or a Scheduler, which
//   counts the steps and knows the groups
//
// A schedule is asked for the rate that step 0, 1, 2, … uses, in any order: its only state is that
// number. Steps may be batches or epochs, whichever the caller counts. Past its end a schedule
// keeps its last rate. Values that make no sense throw when the schedule is made.
#pragma once

#include "core/function.h"
#include "core/safetensors.h"

#include <cstdint>
#include <type_traits>
#include <vector>

namespace weft::optim {

class Optimizer;

// A value: copies are equal and independent. Any function of the step will do.
class Schedule {
 public:
  Schedule() = default;  // has no rate yet: asking for one throws
  template <class F>
  requires std::is_invocable_r_v<double, const F&, int64_t> Schedule(F rate)
      : rate_(std::move(rate)) {}
  // Steps count from 0.
  double operator()(int64_t step) const;

 private:
  Function<double(int64_t)> rate_;
};

Schedule constant(double lr);

// lr * gamma^floor(step / every)
Schedule step_decay(double lr, int64_t every, double gamma = 0.1);

// lr * gamma^(how many milestones are at or before step); milestones rise.
Schedule multi_step(double lr, std::vector<int64_t> milestones, double gamma = 0.1);

// lr * gamma^step
Schedule exponential(double lr, double gamma);

// Half a cosine from lr at step 0 to `last` at step `steps` (Loshchilov & Hutter 2017, equation 5).
Schedule cosine(double lr, int64_t steps, double last = 0);

// first + (lr - first) * (step + 1) / steps, and lr from step `steps` - 1 on: the first step
// already moves.
Schedule linear_warmup(double lr, int64_t steps, double first = 0);

// last + (lr - last) * (1 - step / steps)^power
Schedule polynomial(double lr, int64_t steps, double power = 1, double last = 0);

// One cycle (Smith & Topin 2018) as PyTorch shapes it: half a cosine from lr / start_factor up to
// lr over the first `rise` of the steps, then another down to lr / start_factor / end_factor at
// step `steps` - 1.
struct OneCycleOptions {
  double rise = 0.3;
  double start_factor = 25;
  double end_factor = 1e4;
};
Schedule one_cycle(double lr, int64_t steps, OneCycleOptions options = {});

// One schedule after another, each for its number of steps and counted from its own step 0; the
// last goes on.
struct SchedulePart {
  Schedule schedule;
  int64_t steps;
};
Schedule sequential(std::vector<SchedulePart> parts);

// Sets the rates of an optimizer's groups: those of step 0 when it is made. The optimizer must
// outlive it.
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
  // Goes to any step: what resuming needs. Where a schedule has no rate for it, nothing changes.
  void seek(int64_t step);
  // Throws what seek(step) would.
  void check(int64_t step) const { rates_at(step); }

  // The position as "schedule.step".
  std::vector<NamedTensor> state_dict() const;
  void load_state_dict(std::span<const NamedTensor> state);

 private:
  std::vector<double> rates_at(int64_t step) const;

  Optimizer& optimizer_;
  std::vector<Schedule> schedules_;
  int64_t position_ = 0;
};

}  // namespace weft::optim
