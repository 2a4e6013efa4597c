#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/optimizer.h"

namespace weft::optim {
namespace {

void check_rate(const char* name, double lr) {
  WEFT_CHECK(lr >= 0 && std::isfinite(lr), name, "expected a finite lr of 0 or more, got ", lr);
}

void check_steps(const char* name, int64_t steps) {
  WEFT_CHECK(steps >= 1, name, "expected at least 1 step, got ", steps);
}

// Share of the way done at `step` of `steps`, in [0, 1].
double progress(int64_t step, int64_t steps) {
  return static_cast<double>(std::clamp<int64_t>(step, 0, steps)) / static_cast<double>(steps);
}

// Half a cosine from `from` at 0 to `to` at 1.
double cosine_between(double from, double to, double share) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double power(double base, int64_t exponent) { return std::pow(base, static_cast<double>(exponent)); }

}  // namespace

void Constant::check() const { check_rate("constant", lr); }

double StepDecay::operator()(int64_t step) const { return lr * power(gamma, step / every); }

void StepDecay::check() const {
  check_rate("step_decay", lr);
  check_rate("step_decay", gamma);
  check_steps("step_decay", every);
}

double MultiStep::operator()(int64_t step) const {
  return lr * power(gamma, std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin());
}

void MultiStep::check() const {
  check_rate("multi_step", lr);
  check_rate("multi_step", gamma);
  WEFT_CHECK(std::is_sorted(milestones.begin(), milestones.end()), "multi_step",
             "expected milestones that rise, got ", milestones.size(), " out of order");
}

double Exponential::operator()(int64_t step) const { return lr * power(gamma, step); }

void Exponential::check() const {
  check_rate("exponential", lr);
  check_rate("exponential", gamma);
}

double Cosine::operator()(int64_t step) const { return cosine_between(lr, last, progress(step, steps)); }

void Cosine::check() const {
  check_rate("cosine", lr);
  check_rate("cosine", last);
  check_steps("cosine", steps);
}

double LinearWarmup::operator()(int64_t step) const { return first + (lr - first) * progress(step + 1, steps); }

void LinearWarmup::check() const {
  check_rate("linear_warmup", lr);
  check_rate("linear_warmup", first);
  check_steps("linear_warmup", steps);
}

double Polynomial::operator()(int64_t step) const {
  return last + (lr - last) * std::pow(1 - progress(step, steps), power);
}

void Polynomial::check() const {
  check_rate("polynomial", lr);
  check_rate("polynomial", last);
  check_steps("polynomial", steps);
  WEFT_CHECK(power > 0, "polynomial", "expected a power above 0, got ", power);
}

double OneCycle::operator()(int64_t step) const {
  const double start = lr / start_factor;
  const double top = rise * static_cast<double>(steps) - 1;  // the step, not always whole, of the highest rate
  const double last = static_cast<double>(steps - 1);
  const double at = std::min(static_cast<double>(step), last);
  if (at <= top) return cosine_between(start, lr, top > 0 ? at / top : 1);
  return cosine_between(lr, start / end_factor, (at - top) / (last - top));
}

void OneCycle::check() const {
  check_rate("one_cycle", lr);
  WEFT_CHECK(steps >= 2, "one_cycle", "expected at least 2 steps, got ", steps);
  WEFT_CHECK(rise >= 0 && rise < 1, "one_cycle", "expected a rise in [0, 1), got ", rise);
  WEFT_CHECK(start_factor > 0 && end_factor > 0, "one_cycle", "expected factors above 0, got ", start_factor,
             " and ", end_factor);
}

double Sequential::operator()(int64_t step) const {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (step < parts[i].steps) return parts[i].schedule(step);
    step -= parts[i].steps;
  }
  return parts.back().schedule(step);
}

void Sequential::check() const {
  WEFT_CHECK(!parts.empty(), "sequential", "expected at least one schedule, got none");
  for (const Part& part : parts) check_steps("sequential", part.steps);
}

Scheduler::Scheduler(Optimizer& optimizer, Schedule schedule)
    : Scheduler(optimizer, std::vector<Schedule>(static_cast<size_t>(optimizer.groups()), std::move(schedule))) {}

Scheduler::Scheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)) {
  WEFT_CHECK(static_cast<int64_t>(schedules_.size()) == optimizer.groups(), "scheduler", "expected ",
             optimizer.groups(), " schedules, one a group, got ", schedules_.size());
  seek(0);
}

void Scheduler::seek(int64_t step) {
  WEFT_CHECK(step >= 0, "scheduler", "expected a step of 0 or more, got ", step);
  std::vector<double> rates;
  for (const Schedule& schedule : schedules_) {
    rates.push_back(schedule(step));
    check_rate("scheduler", rates.back());
  }
  for (size_t group = 0; group < rates.size(); ++group) {
    optimizer_.set_lr(static_cast<int64_t>(group), rates[group]);
  }
  position_ = step;
}

std::vector<NamedTensor> Scheduler::state_dict() const {
  return {{"schedule.step", from_values(std::span<const int64_t>(&position_, 1), {})}};
}

void Scheduler::load_state_dict(std::span<const NamedTensor> state) {
  WEFT_CHECK(state.size() == 1 && state[0].name == "schedule.step" && state[0].tensor.dtype() == i64 &&
                 state[0].tensor.numel() == 1,
             "scheduler", "expected one i64 number named schedule.step, got ", state.size(), " tensors",
             state.empty() ? std::string() : ", first " + state[0].name);
  seek(state[0].tensor.item_int());
}

}  // namespace weft::optim
