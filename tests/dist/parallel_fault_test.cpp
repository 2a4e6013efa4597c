// One rank fails somewhere in a step, under every strategy: the others end with a verdict that
// names it, and nothing is left behind. And what does not fail: a rank that is late, and a step
// that all ranks give up alike.
#include "autograd/grad_mode.h"
#include "dist/shm.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"
#include "tests/support/processes.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <mutex>
#include <tuple>

namespace weft::test {
namespace {

using dist::CommunicationError;
using testing::HasSubstr;

constexpr int kTrainingRanks = 3;
constexpr int kTrainingVictim = 1;
constexpr int64_t kTrainingSteps = 3;
constexpr int64_t kShards = 6;  // two a rank
constexpr int64_t kTrainingBatch = 12;

enum class Point : uint8_t {
  construction,
  forward,
  backward,   // the first gradients have landed
  reduction,  // the last gradient has: sums of the others are under way
  clip,       // sums are complete
  optimizer,  // before it steps
  gather,     // it has stepped: what it wrote is to be spread
  between_steps,
  evaluation,
};
constexpr std::array kPointNames = {"construction", "forward", "backward",      "reduction", "clip",
                                    "optimizer",    "gather",  "between steps", "evaluation"};
constexpr int kPointCount = static_cast<int>(kPointNames.size());

// Called wherever a fault could strike; what it throws leaves the training.
using Strike = std::function<void(Point, int64_t step)>;

// Strikes between an optimizer's step and what its Sharding does after it.
class Proxy final : public optim::Sharding {
 public:
  Proxy(Ref<optim::Sharding> real, std::function<void()> strike)
      : real_(std::move(real)), strike_(std::move(strike)) {}
  void optimizer_made() override { real_->optimizer_made(); }
  void before_step() override { real_->before_step(); }
  void after_step() override {
    strike_();
    real_->after_step();
  }
  void parameters_changed() override { real_->parameters_changed(); }
  void finish_gradients() override { real_->finish_gradients(); }
  const std::vector<optim::ShardedParameter>& all() const override { return real_->all(); }
  Place place(const Tensor& part) const override { return real_->place(part); }
  void sum(std::span<double> values) override { real_->sum(values); }
  void max(std::span<double> values) override { real_->max(values); }

 private:
  Ref<optim::Sharding> real_;
  std::function<void()> strike_;
};

// Trains a CNN with BatchNorm and evaluates it. A step that throws an Error that is no verdict is
// begun anew where `again` is set. Gives digests and losses as text.
std::string train(dist::Communicator& comm, const std::string& strategy, const Strike& strike,
                  bool again = false) {
  const TestModel test = test_model("cnn");
  const auto model = test.make();
  int64_t step = 0;
  comm.barrier();
  strike(Point::construction, step);
  dist::ParallelOptions options;
  options.strategy = strategy;
  options.logical_shards = kShards;
  options.mean_over_shards = false;
  options.bucket_bytes = 1500;
  if (strategy == "fsdp") options.wrap.min_parameters = 300;
  dist::Parallel parallel(*model, comm, options);
  const auto parameters = model->named_parameters();
  add_accumulated_hook(parameters.back().tensor,
                       [&](const Tensor&) { strike(Point::backward, step); });
  add_accumulated_hook(parameters.front().tensor,
                       [&](const Tensor&) { strike(Point::reduction, step); });
  for (const auto& [name, module] : model->named_modules()) {
    if (name != "conv2") continue;
    module->add_forward_pre_hook([&](nn::Module&, const Tensor&) {
      strike(grad_enabled() ? Point::forward : Point::evaluation, step);
      return Tensor();
    });
  }
  const optim::Parameters listed = parallel.parameters();
  optim::AdamW optimizer(
      optim::Parameters(listed.list(),
                        make_ref<Proxy>(listed.sharding(), [&] { strike(Point::gather, step); })),
      {.lr = 0.01});
  std::string outcome;
  const auto run_step = [&] {
    parallel.begin_step(static_cast<uint64_t>(step));
    for (const dist::Shard& shard : parallel.shards()) {
      parallel.begin_shard(shard);
      const Rows rows =
          test.rows(step, shard.first_row(kTrainingBatch), shard.rows(kTrainingBatch));
      parallel.backward(
          cross_entropy((*model)(rows.input), rows.target, {.reduction = Reduction::sum}) *
          (1.0 / kTrainingBatch));
    }
    parallel.finish_gradients();
    strike(Point::clip, step);
    optim::clip_grad_norm(parallel.parameters(), 0.5);
    strike(Point::optimizer, step);
    optimizer.step();
    outcome += concat({parallel.loss(), " "});
    strike(Point::between_steps, step);
  };
  while (step < kTrainingSteps) {
    try {
      run_step();
      ++step;
    } catch (const CommunicationError&) {
      throw;
    } catch (const Error&) {
      if (!again) throw;
    }
  }
  {
    const NoGrad no_grad;
    model->eval();
    double hits = 0;
    for (int64_t batch = 0; batch < 2; ++batch) {
      const Rows rows = test.rows(100 + batch, comm.rank() * 4, 4);
      hits += sum(eq(argmax((*model)(rows.input), 1), rows.target)).item();
    }
    comm.all_reduce({&hits, 1, f64}, dist::ReduceOp::sum, {"evaluation"});
    outcome += concat({hits, " "});
  }
  parallel.with_full_parameters([&] { outcome += std::to_string(digest_of(*model)); });
  return outcome;
}

// Once, on this rank, in the second step.
Strike once_at(Point point, const std::function<void()>& fault) {
  auto struck = std::make_shared<bool>(false);
  return [=](Point at, int64_t step) {
    const bool within = point != Point::construction && point != Point::evaluation;
    if (at != point || (within && step != 1) || std::exchange(*struck, true)) return;
    fault();
  };
}

void nothing(Point, int64_t) {}

class ParallelFault : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string strategy() const { return std::get<0>(GetParam()); }
  int victim() const { return std::get<1>(GetParam()); }

  // A job for each point, all at the same time, so that a timeout is waited for once.
  void expect_verdicts(const std::function<void()>& fault, double timeout, const std::string& what,
                       bool alive = false) {
    const std::string job = fresh_job_name();
    ProcessesOptions options{.seconds = 90};
    if (alive) {
      for (int point = 0; point < kPointCount; ++point)
        options.abandoned.push_back(point * kTrainingRanks + victim());
    }
    const auto outcomes = run_processes(
        kPointCount * kTrainingRanks,
        [&](int process) {
          const int point = process / kTrainingRanks;
          const int rank = process % kTrainingRanks;
          const rlimit no_core{0, 0};
          setrlimit(RLIMIT_CORE, &no_core);
          const auto comm = dist::join_shm(concat({job, "-", point}), rank, kTrainingRanks,
                                           {.timeout_seconds = timeout});
          return train(*comm, strategy(),
                       rank == victim() ? once_at(static_cast<Point>(point), fault) : nothing);
        },
        options);
    for (int process = 0; process < kPointCount * kTrainingRanks; ++process) {
      if (process % kTrainingRanks == victim()) continue;
      const auto& outcome = outcomes[static_cast<size_t>(process)];
      SCOPED_TRACE(concat({kPointNames[static_cast<size_t>(process / kTrainingRanks)], ", rank ",
                           process % kTrainingRanks, ": ", outcome.text}));
      EXPECT_EQ(outcome.code, kVerdict);
      EXPECT_THAT(outcome.text,
                  testing::ContainsRegex(
                      concat({"no rank (", victim(), "|[0-9] \\(of the job: ", victim(), "\\))"})));
      EXPECT_THAT(outcome.text,
                  testing::ContainsRegex("(all_reduce|reduce_scatter|all_gather|broadcast|barrier|"
                                         "gather|split) #[0-9]+ of 'world"));
      EXPECT_THAT(outcome.text, HasSubstr(what));
    }
    EXPECT_THAT(leftovers(), testing::IsEmpty());
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, ParallelFault,
                         testing::Combine(testing::ValuesIn(kStrategies),
                                          testing::Range(0, kTrainingRanks)),
                         [](const auto& row) {
                           return concat({std::get<0>(row.param), "_rank", std::get<1>(row.param)});
                         });

TEST_P(ParallelFault, RankThatThrowsIsNamed) {
  expect_verdicts([] { throw Error("bad sample"); }, 60, "it gave up");
}

TEST_P(ParallelFault, KilledRankIsNamed) {
  expect_verdicts([] { raise(SIGKILL); }, 60, "died (process ");
}

TEST_P(ParallelFault, StoppedRankIsNamed) {
  expect_verdicts([] { raise(SIGSTOP); }, 3, "it did not come within 3.", true);
}

TEST_P(ParallelFault, RankThatIsLateBeyondTheTimeoutIsNamed) {
  expect_verdicts([] { sleep(1000); }, 3, "it did not come within 3.", true);
}

// Memory of ranks that are threads is shared: nobody may free what another still reads.
TEST_P(ParallelFault, ThreadRanksHearOfOneThatThrows) {
  for (int point = 0; point < kPointCount; ++point) {
    SCOPED_TRACE(kPointNames[static_cast<size_t>(point)]);
    std::mutex mutex;
    std::vector<std::string> verdicts;
    const std::string text = error_of([&] {
      dist::run_thread_ranks(kTrainingRanks, [&](dist::Communicator& comm) {
        try {
          train(comm, strategy(),
                comm.rank() == victim()
                    ? once_at(static_cast<Point>(point), [] { throw Error("bad sample"); })
                    : nothing);
        } catch (const CommunicationError& error) {
          const std::lock_guard lock(mutex);
          verdicts.push_back(error.what());
          throw;
        }
      });
    });
    EXPECT_EQ(text, "bad sample");
    EXPECT_EQ(verdicts.size(), 2U);
    for (const std::string& verdict : verdicts)
      EXPECT_THAT(verdict, HasSubstr("it gave up"));
  }
}

class ParallelCourse : public testing::TestWithParam<const char*> {
 protected:
  // What rank 0 gives, after a check that all give the same.
  std::string train_all(const std::function<Strike(int rank)>& strike, bool again = false) const {
    std::mutex mutex;
    std::vector<std::string> outcomes;
    dist::run_thread_ranks(kTrainingRanks, [&](dist::Communicator& comm) {
      std::string outcome = train(comm, GetParam(), strike(comm.rank()), again);
      const std::lock_guard lock(mutex);
      outcomes.push_back(std::move(outcome));
    });
    for (const std::string& outcome : outcomes)
      EXPECT_EQ(outcome, outcomes.front());
    return outcomes.at(0);
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, ParallelCourse, testing::ValuesIn(kStrategies),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(ParallelCourse, LateRankChangesNothing) {
  const std::string undisturbed = train_all([](int) { return nothing; });
  const std::string late = train_all([](int rank) -> Strike {
    if (rank != kTrainingVictim) return nothing;
    return [](Point, int64_t) { usleep(15'000); };
  });
  EXPECT_EQ(late, undisturbed);
}

TEST_P(ParallelCourse, StepThatAllGiveUpLeavesNoTrace) {
  const std::string undisturbed = train_all([](int) { return nothing; });
  for (const Point point :
       {Point::forward, Point::backward, Point::reduction, Point::clip, Point::optimizer}) {
    const std::string again =
        train_all([&](int) { return once_at(point, [] { throw Error("not this time"); }); }, true);
    EXPECT_EQ(again, undisturbed) << kPointNames[static_cast<size_t>(point)];
  }
}

// A backward that ended with an error is not mistaken for a whole one.
TEST_P(ParallelCourse, OptimizerRefusesHalfAStep) {
  const std::string text = error_of([] {
    dist::run_thread_ranks(1, [](dist::Communicator& comm) {
      const TestModel test = test_model("mlp");
      const auto model = test.make();
      dist::Parallel parallel(*model, comm, {.strategy = GetParam()});
      optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1});
      add_accumulated_hook(model->named_parameters().front().tensor,
                           [](const Tensor&) { throw Error("bad gradient"); });
      parallel.begin_step(0);
      parallel.begin_shard(parallel.shards()[0]);
      const Rows rows = test.rows(0, 0, 4);
      EXPECT_THROW(parallel.backward(cross_entropy((*model)(rows.input), rows.target)), Error);
      optimizer.step();
    });
  });
  EXPECT_THAT(text, HasSubstr("expected a whole backward() of shard 0"));
}

}  // namespace
}  // namespace weft::test
