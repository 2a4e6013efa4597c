// Schedules against their closed forms.
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

namespace weft {
namespace {

using namespace optim;
using test::error_of;

std::vector<double> rates(const Schedule& schedule, int64_t steps) {
  std::vector<double> result;
  for (int64_t step = 0; step < steps; ++step)
    result.push_back(schedule(step));
  return result;
}

void expect_rates(const Schedule& schedule, const std::vector<double>& expected) {
  const auto actual = rates(schedule, static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-12) << "step " << i;
}

TEST(Schedule, ClosedForms) {
  expect_rates(constant(0.5), {0.5, 0.5, 0.5});
  expect_rates(step_decay(1, 2, 0.5), {1, 1, 0.5, 0.5, 0.25});
  expect_rates(multi_step(1, {1, 3}), {1, 0.1, 0.1, 0.01, 0.01});
  expect_rates(exponential(2, 0.5), {2, 1, 0.5, 0.25});
  expect_rates(linear_warmup(1, 4), {0.25, 0.5, 0.75, 1, 1, 1});
  expect_rates(linear_warmup(1, 2, 0.5), {0.75, 1, 1});
  expect_rates(cosine(1, 4, 0.2), {1, 0.6 + 0.4 * std::numbers::sqrt2 / 2, 0.6,
                                   0.6 - 0.4 * std::numbers::sqrt2 / 2, 0.2, 0.2});
  expect_rates(polynomial(1, 4), {1, 0.75, 0.5, 0.25, 0, 0});
  expect_rates(polynomial(1, 2, 2, 0.5), {1, 0.625, 0.5});
}

TEST(Schedule, OneCycleRisesAndFalls) {
  // 10 steps, 3 of them (less one) up: the top is at step 2, the end at step 9.
  const Schedule cycle = one_cycle(1, 10);
  EXPECT_NEAR(cycle(0), 1.0 / 25, 1e-12);
  EXPECT_NEAR(cycle(1), (1 + 1.0 / 25) / 2, 1e-12);
  EXPECT_NEAR(cycle(2), 1, 1e-12);
  const double end = 1.0 / 25 / 1e4;
  for (int step = 3; step < 10; ++step) {
    EXPECT_NEAR(cycle(step),
                end + (1 - end) * (1 + std::cos(std::numbers::pi * (step - 2) / 7)) / 2, 1e-12);
  }
  EXPECT_NEAR(cycle(100), end, 1e-12);
  for (const int64_t steps : {1, 2, 3, 7}) {
    for (const double rate : rates(one_cycle(1, steps), steps + 2))
      EXPECT_TRUE(rate > 0 && rate <= 1) << steps;
  }
}

TEST(Schedule, SequentialCountsEachPartFromItsOwnStart) {
  const Schedule both = sequential({{linear_warmup(1, 2), 2}, {cosine(1, 4), 4}});
  EXPECT_EQ(both(0), 0.5);
  EXPECT_EQ(both(1), 1);
  for (int step = 0; step < 6; ++step)
    EXPECT_EQ(both(2 + step), cosine(1, 4)(step));
  // Any order of asking: the step is the whole state.
  EXPECT_EQ(both(0), 0.5);
}

TEST(Schedule, RefusesNonsense) {
  for (const auto& bad : std::vector<std::function<void()>>{
           [] { constant(-1); }, [] { constant(NAN); }, [] { step_decay(1, 0); },
           [] {
             multi_step(1, {3, 3});
           },
           [] { cosine(1, 0); }, [] { cosine(1, 5, -1); }, [] { linear_warmup(1, 0); },
           [] { polynomial(1, 5, 0); }, [] { one_cycle(1, 0); },
           [] { one_cycle(1, 5, {.rise = 1}); }, [] { sequential({}); },
           [] { exponential(1, INFINITY); }, [] { constant(1)(-1); }, [] { Schedule()(0); }}) {
    EXPECT_NE(error_of(bad).find("expected"), std::string::npos);
  }
}

TEST(Scheduler, DrivesGroupsAndResumes) {
  const Tensor a = test::leaf({2}), b = test::leaf({2});
  Sgd optimizer({{std::vector{a}, {.lr = 9}}, {std::vector{b}, {.lr = 9}}});
  Scheduler one(optimizer, exponential(1, 0.5));
  EXPECT_EQ(optimizer.lr(0), 1);
  one.step();
  one.step();
  EXPECT_EQ(optimizer.lr(0), 0.25);
  EXPECT_EQ(optimizer.lr(1), 0.25);

  Scheduler two(optimizer,
                {constant(0.3), [](int64_t step) { return 1.0 + static_cast<double>(step); }});
  two.load_state_dict(one.state_dict());
  EXPECT_EQ(two.position(), 2);
  EXPECT_EQ(optimizer.lr(0), 0.3);
  EXPECT_EQ(optimizer.lr(1), 3);
  EXPECT_NE(error_of([&] {
              Scheduler(optimizer, std::vector<Schedule>{constant(1)});
            }).find("expected 2 schedules"),
            std::string::npos);
  EXPECT_NE(error_of([&] { two.seek(-1); }).find("scheduler"), std::string::npos);
  EXPECT_NE(error_of([&] { two.load_state_dict({}); }).find("schedule.step"), std::string::npos);
}

}  // namespace
}  // namespace weft
