#include "optim/schedule.h"

#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

double power_of(double base, int64_t exponent) {
  return std::pow(base, static_cast<double>(exponent));
}

}  // namespace

double Schedule::operator()(int64_t step) const {
  WEFT_CHECK(rate_ && step >= 0, "schedule", "expected a step of 0 or more of a schedule, got ",
             rate_ ? std::to_string(step) : "an undefined schedule");
  return rate_(step);
}

Schedule constant(double lr) {
  check_rate("constant", lr);
  return [lr](int64_t) { return lr; };
}

Schedule step_decay(double lr, int64_t every, double gamma) {
  check_rate("step_decay", lr);
  check_rate("step_decay", gamma);
  check_steps("step_decay", every);
  return [=](int64_t step) { return lr * power_of(gamma, step / every); };
}

Schedule multi_step(double lr, std::vector<int64_t> milestones, double gamma) {
  check_rate("multi_step", lr);
  check_rate("multi_step", gamma);
  for (size_t i = 1; i < milestones.size(); ++i) {
    WEFT_CHECK(milestones[i - 1] < milestones[i], "multi_step",
               "expected milestones that rise, got ", milestones[i], " after ", milestones[i - 1]);
  }
  return [lr, gamma, milestones = std::move(milestones)](int64_t step) {
    const auto passed =
        std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
    return lr * power_of(gamma, passed);
  };
}

Schedule exponential(double lr, double gamma) {
  check_rate("exponential", lr);
  check_rate("exponential", gamma);
  return [=](int64_t step) { return lr * power_of(gamma, step); };
}

Schedule cosine(double lr, int64_t steps, double last) {
  check_rate("cosine", lr);
  check_rate("cosine", last);
  check_steps("cosine", steps);
  return [=](int64_t step) { return cosine_between(lr, last, progress(step, steps)); };
}

Schedule linear_warmup(double lr, int64_t steps, double first) {
  check_rate("linear_warmup", lr);
  check_rate("linear_warmup", first);
  check_steps("linear_warmup", steps);
  return [=](int64_t step) {
    return step + 1 >= steps ? lr : first + (lr - first) * progress(step + 1, steps);
  };
}

Schedule polynomial(double lr, int64_t steps, double power, double last) {
  check_rate("polynomial", lr);
  check_rate("polynomial", last);
  check_steps("polynomial", steps);
  WEFT_CHECK(power > 0, "polynomial", "expected a power above 0, got ", power);
  return
      [=](int64_t step) { return last + (lr - last) * std::pow(1 - progress(step, steps), power); };
}

Schedule one_cycle(double lr, int64_t steps, OneCycleOptions options) {
  check_rate("one_cycle", lr);
  WEFT_CHECK(steps >= 1, "one_cycle", "expected at least 1 step, got ", steps);
  WEFT_CHECK(options.rise >= 0 && options.rise < 1, "one_cycle", "expected a rise in [0, 1), got ",
             options.rise);
  WEFT_CHECK(options.start_factor > 0 && options.end_factor > 0, "one_cycle",
             "expected factors above 0, got ", options.start_factor, " and ", options.end_factor);
  const double start = lr / options.start_factor;
  const auto last = static_cast<double>(steps - 1);
  // The step, not always whole, of the highest rate. Where the rise has no room, the cycle begins
  // at the top.
  const double top = std::max(0.0, options.rise * static_cast<double>(steps) - 1);
  return [=](int64_t step) {
    const double at = std::min(static_cast<double>(step), last);
    if (at <= top) return cosine_between(start, lr, top > 0 ? at / top : 1);
    return cosine_between(lr, start / options.end_factor, (at - top) / (last - top));
  };
}

Schedule sequential(std::vector<SchedulePart> parts) {
  WEFT_CHECK(!parts.empty(), "sequential", "expected at least one schedule, got none");
  for (const SchedulePart& part : parts)
    check_steps("sequential", part.steps);
  return [parts = std::move(parts)](int64_t step) {
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (step < parts[i].steps) return parts[i].schedule(step);
      step -= parts[i].steps;
    }
    return parts.back().schedule(step);
  };
}

Scheduler::Scheduler(Optimizer& optimizer, Schedule schedule)
    : Scheduler(optimizer, std::vector<Schedule>(static_cast<size_t>(optimizer.groups()),
                                                 std::move(schedule))) {}

Scheduler::Scheduler(Optimizer& optimizer, std::vector<Schedule> schedules)
    : optimizer_(optimizer), schedules_(std::move(schedules)) {
  WEFT_CHECK(static_cast<int64_t>(schedules_.size()) == optimizer.groups(), "scheduler",
             "expected ", optimizer.groups(), " schedules, one a group, got ", schedules_.size());
  seek(0);
}

std::vector<double> Scheduler::rates_at(int64_t step) const {
  WEFT_CHECK(step >= 0, "scheduler", "expected a step of 0 or more, got ", step);
  std::vector<double> rates;
  for (const Schedule& schedule : schedules_) {
    rates.push_back(schedule(step));
    check_rate("scheduler", rates.back());
  }
  return rates;
}

void Scheduler::seek(int64_t step) {
  const std::vector<double> rates = rates_at(step);
  for (size_t group = 0; group < rates.size(); ++group) {
    optimizer_.set_lr(static_cast<int64_t>(group), rates[group]);
  }
  position_ = step;
}

std::vector<NamedTensor> Scheduler::state_dict() const {
  return {{"schedule.step", from_values(std::span<const int64_t>(&position_, 1), {})}};
}

void Scheduler::load_state_dict(std::span<const NamedTensor> state) {
  WEFT_CHECK(state.size() == 1 && state[0].name == "schedule.step" &&
                 state[0].tensor.dtype() == i64 && state[0].tensor.numel() == 1,
             "scheduler", "expected one i64 number named schedule.step, got ", state.size(),
             " tensors", state.empty() ? std::string() : ", first " + state[0].name);
  seek(state[0].tensor.item_int());
}

}  // namespace weft::optim
