// One rank fails while Parallel is made, at any of the things it asks its communicators for: the
// others get the verdict.
#include "dist/shm.h"
#include "tests/support/parallel_models.h"
#include "tests/support/processes.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <mutex>

namespace weft::test {
namespace {

using testing::HasSubstr;

constexpr int kBuilders = 3;
constexpr int kStruck = 1;

// Counts what is asked of a communicator and of all that is split from it, and strikes at one of
// those things.
struct Striker {
  int64_t at = -1;
  std::function<void()> strike = {};
  int64_t asked = 0;
  void next() {
    if (asked++ == at) strike();
  }
};

class Striking final : public dist::Communicator {
 public:
  Striking(dist::Communicator& real, Striker& striker) : real_(real), striker_(striker) {}
  Striking(std::unique_ptr<dist::Communicator> real, Striker& striker)
      : owned_(std::move(real)), real_(*owned_), striker_(striker) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  const char* backend() const override { return real_.backend(); }
  const std::string& name() const override { return real_.name(); }
  dist::Recorder& recorder() override { return real_.recorder(); }
  Ref<Storage> allocate(int64_t bytes) override {
    striker_.next();
    return real_.allocate(bytes);
  }
  void run(const dist::Call& call) override {
    striker_.next();
    real_.run(call);
  }
  dist::Handle start(const dist::Call& call) override {
    striker_.next();
    return real_.start(call);
  }
  void wait_all() override { real_.wait_all(); }
  std::unique_ptr<dist::Communicator> split(int color, int key, const std::string& label) override {
    striker_.next();
    return std::make_unique<Striking>(real_.split(color, key, label), striker_);
  }
  void abort(const std::string& reason) override { real_.abort(reason); }

 private:
  std::unique_ptr<dist::Communicator> owned_;
  dist::Communicator& real_;
  Striker& striker_;
};

void construct(dist::Communicator& comm, const std::string& strategy, Striker& striker) {
  const auto model = test_model("cnn").make();
  Striking striking(comm, striker);
  dist::ParallelOptions options;
  options.strategy = strategy;
  options.bucket_bytes = 1500;
  options.parameter_dtype = bf16;
  if (strategy == "fsdp") options.wrap.min_parameters = 300;
  const dist::Parallel parallel(*model, striking, options);
  comm.barrier();
}

// How many things a rank asks for.
int64_t things(const std::string& strategy) {
  int64_t count = 0;
  dist::run_thread_ranks(kBuilders, [&](dist::Communicator& comm) {
    Striker none;
    construct(comm, strategy, none);
    if (comm.rank() == kStruck) count = none.asked;
  });
  return count;
}

class Construction : public testing::TestWithParam<const char*> {
 protected:
  // Jobs of processes, struck at a few points each.
  void expect_verdicts(const std::function<void()>& strike, double timeout, const std::string& what,
                       bool stopped = false) {
    constexpr int kPoints = 5;
    const std::string strategy = GetParam();
    const int64_t all = things(strategy);
    ASSERT_GT(all, kPoints);
    const std::string job = fresh_job_name();
    ProcessesOptions options{.seconds = 90};
    if (stopped) {
      for (int point = 0; point < kPoints; ++point)
        options.abandoned.push_back(point * kBuilders + kStruck);
    }
    const auto outcomes = run_processes(
        kPoints * kBuilders,
        [&](int process) -> std::string {
          const int point = process / kBuilders;
          const int rank = process % kBuilders;
          const rlimit no_core{0, 0};
          setrlimit(RLIMIT_CORE, &no_core);
          Striker striker;
          if (rank == kStruck) striker = {all * point / kPoints, strike};
          const auto comm = dist::join_shm(concat({job, "-", point}), rank, kBuilders,
                                           {.timeout_seconds = timeout});
          construct(*comm, strategy, striker);
          return "no striker";
        },
        options);
    for (int process = 0; process < kPoints * kBuilders; ++process) {
      if (process % kBuilders == kStruck) continue;
      const auto& outcome = outcomes[static_cast<size_t>(process)];
      SCOPED_TRACE(concat(
          {"point ", process / kBuilders, ", rank ", process % kBuilders, ": ", outcome.text}));
      EXPECT_EQ(outcome.code, kVerdict);
      EXPECT_THAT(outcome.text, testing::ContainsRegex("no rank (1|[0-9] \\(of the job: 1\\))"));
      EXPECT_THAT(outcome.text, HasSubstr(what));
    }
    EXPECT_THAT(leftovers(), testing::IsEmpty());
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, Construction, testing::ValuesIn(kStrategies),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(Construction, ThreadRanksHearOfOneThatThrows) {
  const std::string strategy = GetParam();
  const int64_t all = things(strategy);
  for (int64_t point = 0; point < all; ++point) {
    SCOPED_TRACE(point);
    std::mutex mutex;
    std::vector<std::string> verdicts;
    const std::string text = error_of([&] {
      dist::run_thread_ranks(kBuilders, [&](dist::Communicator& comm) {
        Striker striker;
        if (comm.rank() == kStruck) striker = {point, [] { throw Error("no memory"); }};
        try {
          construct(comm, strategy, striker);
        } catch (const dist::CommunicationError& error) {
          const std::lock_guard lock(mutex);
          verdicts.push_back(error.what());
          throw;
        }
      });
    });
    EXPECT_EQ(text, "no memory");
    EXPECT_EQ(verdicts.size(), 2U);
    for (const std::string& verdict : verdicts)
      EXPECT_THAT(verdict, HasSubstr("it gave up"));
  }
}

TEST_P(Construction, RankThatThrowsIsNamed) {
  expect_verdicts([] { throw Error("no memory"); }, 60, "it gave up");
}

TEST_P(Construction, KilledRankIsNamed) {
  expect_verdicts([] { raise(SIGKILL); }, 60, "died (process ");
}

TEST_P(Construction, StoppedRankIsNamed) {
  expect_verdicts([] { raise(SIGSTOP); }, 3, "it did not come within 3.", true);
}

}  // namespace
}  // namespace weft::test
