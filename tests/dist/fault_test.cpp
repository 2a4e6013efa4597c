// Ranks that throw, exit, are killed or stopped: the others end with one verdict that names them.
#include "dist/shm.h"
#include "dist/thread_ranks.h"
#include "tests/support/processes.h"
#include "tests/support/rank_faults.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

namespace weft::dist {
namespace {

using test::error_of;
using testing::HasSubstr;

using test::RankFault;
constexpr int kVictim = 2;

void expect_verdict(const std::vector<test::Outcome>& outcomes, const std::string& what) {
  test::expect_verdicts(outcomes, kVictim, what);
}

std::vector<test::Outcome> run_shm_fault(int point, const RankFault& fault, double timeout,
                                         bool abandoned = false) {
  const std::string job = test::fresh_job_name();
  return test::run_processes(
      test::kFaultRanks,
      [&](int rank) {
        const auto comm = join_shm(job, rank, test::kFaultRanks, {.timeout_seconds = timeout});
        test::work_until_fault(*comm, rank == kVictim ? point : -1, fault);
        return std::string();
      },
      {.abandoned = abandoned ? std::vector<int>{kVictim} : std::vector<int>{}, .seconds = 50});
}

class FaultAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Points, FaultAt, testing::Range(0, test::kFaultPoints));

TEST_P(FaultAt, KilledRank) {
  const double start = clock_seconds();
  const auto outcomes = run_shm_fault(
      GetParam(), [] { raise(SIGKILL); }, 100);
  EXPECT_EQ(outcomes[kVictim].signal, SIGKILL);
  expect_verdict(outcomes, "died (process ");
  EXPECT_LT(clock_seconds() - start, 50) << "noticed by the timeout only";
}

TEST_P(FaultAt, RankThatExits) {
  expect_verdict(run_shm_fault(
                     GetParam(), [] { _exit(0); }, 100),
                 "died (process ");
}

TEST_P(FaultAt, RankThatThrows) {
  const auto outcomes = run_shm_fault(
      GetParam(), [] { throw Error("bad sample"); }, 100);
  EXPECT_EQ(outcomes[kVictim].text, "bad sample");
  expect_verdict(outcomes, "it gave up");
}

// Waits for the timeout, so some of the points; not a shorter one, as a busy machine may keep any
// rank from running for a while.
class StoppedAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Points, StoppedAt, testing::Range(0, test::kFaultPoints, 5));

TEST_P(StoppedAt, StoppedRank) {
  const auto outcomes = run_shm_fault(
      GetParam(), [] { raise(SIGSTOP); }, 3, true);
  expect_verdict(outcomes, "it did not come within 3.");
}

TEST(Fault, KilledAtAnyMoment) {
  // In the midst of large collectives, wherever it happens to be once all have joined.
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& begun = *new (shared) std::atomic<bool>(false);
  for (int round = 0; round < 12; ++round) {
    begun = false;
    const std::string job = test::fresh_job_name();
    const auto outcomes = test::run_processes(test::kFaultRanks,
                                              [&](int rank) {
                                                const auto comm =
                                                    join_shm(job, rank, test::kFaultRanks);
                                                const Ref<Storage> memory = comm->allocate(4 << 20);
                                                std::vector<float> ordinary(1 << 18);
                                                for (;;) {
                                                  comm->all_reduce({memory->data(), 1 << 20, f32});
                                                  comm->all_reduce({ordinary.data(), 1 << 18, f32});
                                                  comm->all_reduce({ordinary.data(), 10, f32});
                                                  begun = true;
                                                }
                                                return std::string();
                                              },
                                              {.meanwhile =
                                                   [&](const std::vector<pid_t>& pids) {
                                                     for (int i = 0; i < 20'000 && !begun; ++i)
                                                       usleep(1000);
                                                     usleep(static_cast<useconds_t>(round) * 1'700);
                                                     kill(pids[kVictim], SIGKILL);
                                                   },
                                               .seconds = 30});
    expect_verdict(outcomes, "");
  }
  munmap(shared, 4096);
}

TEST(Fault, EveryRankKilledLeavesNothing) {
  const std::string job = test::fresh_job_name();
  test::run_processes(3,
                      [&](int rank) {
                        const auto comm = join_shm(job, rank, 3);
                        const Ref<Storage> memory = comm->allocate(1 << 20);
                        for (;;)
                          comm->all_reduce({memory->data(), 1 << 18, f32});
                        return std::string();
                      },
                      {.meanwhile =
                           [](const std::vector<pid_t>& pids) {
                             usleep(100'000);
                             for (const pid_t pid : pids)
                               kill(pid, SIGKILL);
                           },
                       .seconds = 20});
  EXPECT_THAT(test::leftovers(), testing::IsEmpty());
}

TEST(Fault, LateRankIsSaidToBeElsewhere) {
  std::vector<std::string> texts(3);
  run_thread_ranks(3,
                   [&](Communicator& comm) {
                     const auto pair = comm.split(comm.rank() == 0 ? 0 : 1, 0, "pair");
                     texts[static_cast<size_t>(comm.rank())] = error_of([&] {
                       float one = 1;
                       // Rank 1 waits in the pair for rank 2, which waits in the world for both.
                       if (comm.rank() == 1) {
                         std::this_thread::sleep_for(std::chrono::milliseconds(300));
                         pair->all_reduce({&one, 1, f32}, ReduceOp::sum, {.unit = "shard"});
                       } else {
                         comm.all_reduce({&one, 1, f32}, ReduceOp::sum, {.unit = "loss"});
                       }
                     });
                   },
                   {.communicator = {.timeout_seconds = 0.6}});
  EXPECT_EQ(texts[0], texts[2]);
  EXPECT_THAT(texts[0],
              HasSubstr("[all_reduce] expected all 3 ranks in all_reduce #2 of 'world', 1 x "
                        "f32, sum, unit 'loss', got no rank 1: it did not come within 0."));
  EXPECT_THAT(texts[0], HasSubstr("it is elsewhere: in all_reduce #0 of 'world/pair[1]', 1 x f32, "
                                  "sum, unit 'shard'"));
}

TEST(Fault, SlowRankIsSaidToBeSlow) {
  std::vector<std::string> texts(2);
  run_thread_ranks(2,
                   [&](Communicator& comm) {
                     comm.barrier();
                     texts[static_cast<size_t>(comm.rank())] = error_of([&] {
                       if (comm.rank() == 1)
                         std::this_thread::sleep_for(std::chrono::milliseconds(400));
                       float one = 1;
                       comm.all_reduce({&one, 1, f32});
                     });
                   },
                   {.communicator = {.timeout_seconds = 0.15}});
  EXPECT_THAT(texts[0], HasSubstr("got no rank 1: it did not come within 0."));
  EXPECT_THAT(texts[0], HasSubstr("last seen in barrier #0 of 'world', which it left 0."));
  EXPECT_EQ(texts[1], texts[0]) << "the late rank hears it, too";
}

TEST(Fault, RankThatLeavesEarlyIsNamed) {
  EXPECT_THAT(
      error_of([] {
        run_thread_ranks(3, [](Communicator& comm) {
          comm.barrier();
          if (comm.rank() != 1) comm.barrier();
        });
      }),
      HasSubstr("[barrier] expected all 3 ranks in barrier #1 of 'world', got no rank 1: it "
                "has left, last seen in barrier #0 of 'world'"));
}

TEST(Fault, ThreadRanksRethrowTheRootCause) {
  for (int point = 0; point < test::kFaultPoints; ++point) {
    std::mutex mutex;
    std::vector<std::string> verdicts;
    const std::string text = error_of([&] {
      run_thread_ranks(test::kFaultRanks, [&](Communicator& comm) {
        try {
          test::work_until_fault(comm, comm.rank() == kVictim ? point : -1,
                                 [] { throw Error("bad sample"); });
        } catch (const CommunicationError& error) {
          const std::lock_guard lock(mutex);
          verdicts.push_back(error.what());
          throw;
        }
      });
    });
    EXPECT_EQ(text, "bad sample");
    EXPECT_EQ(verdicts.size(), 3u);
    for (const std::string& verdict : verdicts)
      EXPECT_THAT(verdict, HasSubstr("it gave up"));
  }
}

TEST(Fault, AbortTellsWhy) {
  run_thread_ranks(2, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) comm.abort("no more data");
    const std::string verdict = error_of([&] { comm.barrier(); });
    EXPECT_EQ(verdict,
              "[communicator] expected all 2 ranks of 'world', got no rank 0: it gave up after "
              "barrier #0 of 'world': no more data");
    EXPECT_EQ(error_of([&] { comm.barrier(); }), verdict);
    comm.abort("again");  // the first stays
    EXPECT_EQ(error_of([&] { comm.barrier(); }), verdict);
  });
}

}  // namespace
}  // namespace weft::dist
