// Ranks over TCP on this host: the same checks as for other backends, and what happens to ranks
// that fail.
#include "dist/gloo.h"

#include "dist/detail/frame.h"
#include "dist/thread_ranks.h"
#include "tests/support/collective_checks.h"
#include "tests/support/processes.h"
#include "tests/support/rank_faults.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace weft::dist {
namespace {

using test::error_of;
using test::Outcome;
using testing::HasSubstr;

struct Job {
  std::string name = test::fresh_job_name();
  int port = free_port("127.0.0.1");
  int ranks = 2;
  double timeout = 60;

  std::unique_ptr<Communicator> join(int rank) const {
    return join_gloo(
        {.job = name, .address = "127.0.0.1", .port = port, .rank = rank, .size = ranks},
        {.timeout_seconds = timeout});
  }
  std::vector<Outcome> run(const std::function<void(Communicator&)>& body,
                           const test::ProcessesOptions& options = {}) const {
    return test::run_processes(
        ranks,
        [&](int rank) {
          const auto comm = join(rank);
          body(*comm);
          return std::string();
        },
        options);
  }
};

void run_gloo(int ranks, const std::function<void(Communicator&)>& body) {
  const auto outcomes = Job{.ranks = ranks}.run(body);
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].code, test::kReturned)
        << "rank " << r << ": " << outcomes[static_cast<size_t>(r)].text;
}

class Gloo : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Gloo, testing::Values(1, 2, 3, 4, 8));

TEST_P(Gloo, Collectives) {
  run_gloo(GetParam(), test::check_all_collectives);
}

// More than the chunks under way hold at a time.
TEST_P(Gloo, Large) {
  run_gloo(GetParam(), [](Communicator& comm) {
    test::check_collectives(comm, f32, 2'000'001 / comm.size(), false);
    test::check_node_sums(comm, 5, 600'001 / comm.size());
  });
}

TEST_P(Gloo, NodeSums) {
  run_gloo(GetParam(), [](Communicator& comm) {
    for (const int64_t leaves : {1, 2, 3, 5, 8, 13})
      test::check_node_sums(comm, leaves, 50);
    test::check_node_sums(comm, 8, 3000);
    test::check_node_sums(comm, 40, 20);
  });
}

TEST_P(Gloo, StartedCalls) {
  run_gloo(GetParam(), test::check_started);
}

TEST_P(Gloo, Split) {
  run_gloo(GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 5; ++i)
      test::check_split(comm);
  });
}

TEST_P(Gloo, SumsHaveTheBitsOfThreadRanks) {
  uint64_t expected = 0;
  run_thread_ranks(GetParam(), [&](Communicator& comm) {
    const uint64_t digest = test::digest_of_sums(comm);
    if (comm.rank() == 0) expected = digest;
  });
  const Job job{.ranks = GetParam()};
  const auto outcomes = test::run_processes(job.ranks, [&](int rank) {
    const auto comm = job.join(rank);
    return std::to_string(test::digest_of_sums(*comm));
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.text, std::to_string(expected));
}

TEST(GlooContract, DifferencesAreNamedOnEveryRankAndDataStayUntouched) {
  for (const int64_t count : {4, 100'000}) {
    const auto outcomes = Job{.ranks = 3}.run([&](Communicator& comm) {
      std::vector<float> values(static_cast<size_t>(count), 3.0f);
      comm.barrier();
      const std::string text = error_of([&] {
        comm.all_reduce({values.data(), comm.rank() == 2 ? count - 1 : count, f32}, ReduceOp::sum,
                        {"blocks.3", 0, 4});
      });
      if (values != std::vector<float>(values.size(), 3.0f)) throw Error("data were touched");
      if (error_of([&] { comm.barrier(); }) != text) throw Error("the verdict did not stay");
      throw ContractError(text);
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.code, test::kVerdict);
      EXPECT_EQ(outcome.text,
                concat({"[all_reduce] expected the same call on all 3 ranks, got on rank 0: "
                        "all_reduce #1 of 'world', ",
                        count,
                        " x f32, sum, unit 'blocks.3' [0, 4); on rank 2: all_reduce #1 of "
                        "'world', ",
                        count - 1, " x f32, sum, unit 'blocks.3' [0, 4)"}));
    }
  }
}

TEST(GlooContract, SendAndReceiveAreComparedToo) {
  const auto outcomes = Job{.ranks = 2}.run([&](Communicator& comm) {
    std::vector<float> values(100'000);
    if (comm.rank() == 0) comm.send({values.data(), 100'000, f32}, 1, {"grad"});
    if (comm.rank() == 1) comm.recv({values.data(), 99'999, f32}, 0, {"grad"});
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, test::kVerdict);
    EXPECT_THAT(outcome.text, HasSubstr("got on rank 0: send #0 of 'world', 100000 x f32, unit "
                                        "'grad', to rank 1; on rank 1: recv #0"));
  }
}

TEST(GlooContract, DifferencesWithinAGroupLeaveTheWorldWhole) {
  const auto outcomes = Job{.ranks = 4}.run([&](Communicator& comm) {
    const auto group = comm.split(comm.rank() % 2, 0, "shard");
    float values[8] = {};
    const std::string text = error_of([&] {
      group->all_reduce({values, comm.rank() == 3 ? 7 : 6, f32});
    });
    for (int i = 0; i < 20; ++i)
      comm.barrier();
    if (text != "no error") throw ContractError(text);
  });
  for (const size_t r : {0, 2})
    EXPECT_EQ(outcomes[r].code, test::kReturned) << outcomes[r].text;
  for (const size_t r : {1, 3})
    EXPECT_THAT(outcomes[r].text,
                HasSubstr("on rank 1 (of the job: 3): all_reduce #0 of 'world/shard[1]', 7"));
}

// ---- ranks that fail ----

using test::RankFault;

std::vector<Outcome> run_gloo_fault(int victim, int point, const RankFault& fault, double timeout,
                                    bool abandoned = false) {
  const Job job{.ranks = test::kFaultRanks, .timeout = timeout};
  return job.run(
      [&](Communicator& comm) {
        test::work_until_fault(comm, comm.rank() == victim ? point : -1, fault);
      },
      {.abandoned = abandoned ? std::vector<int>{victim} : std::vector<int>{}, .seconds = 50});
}

class GlooFaultAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Points, GlooFaultAt, testing::Range(0, test::kFaultPoints));

TEST_P(GlooFaultAt, KilledRank) {
  const double start = clock_seconds();
  const auto outcomes = run_gloo_fault(
      2, GetParam(), [] { raise(SIGKILL); }, 100);
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  test::expect_verdicts(outcomes, 2, "died (process ");
  EXPECT_LT(clock_seconds() - start, 40) << "noticed by the timeout only";
}

TEST_P(GlooFaultAt, KilledRankZero) {
  const auto outcomes = run_gloo_fault(
      0, GetParam(), [] { raise(SIGKILL); }, 100);
  test::expect_verdicts(outcomes, 0, "no rank 0: it died (process ");
  EXPECT_EQ(outcomes[1].text, outcomes[2].text);
}

TEST_P(GlooFaultAt, RankThatExits) {
  test::expect_verdicts(run_gloo_fault(
                            2, GetParam(), [] { _exit(0); }, 100),
                        2, "died (process ");
}

TEST_P(GlooFaultAt, RankThatThrows) {
  const auto outcomes = run_gloo_fault(
      2, GetParam(), [] { throw Error("bad sample"); }, 100);
  EXPECT_EQ(outcomes[2].text, "bad sample");
  test::expect_verdicts(outcomes, 2, "it gave up");
}

// Waits for the timeout, so a part of the points.
class GlooStoppedAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Points, GlooStoppedAt, testing::Range(0, test::kFaultPoints, 3));

TEST_P(GlooStoppedAt, StoppedRank) {
  const auto outcomes = run_gloo_fault(
      2, GetParam(), [] { raise(SIGSTOP); }, 0.7, true);
  test::expect_verdicts(outcomes, 2, "and does not answer");
}

TEST(GlooFault, KilledAtAnyMoment) {
  for (int round = 0; round < 8; ++round) {
    const Job job{.ranks = test::kFaultRanks};
    const auto outcomes = job.run(
        [](Communicator& comm) {
          std::vector<float> memory(1 << 20);
          for (;;) {
            comm.all_reduce({memory.data(), 1 << 20, f32});
            comm.all_reduce({memory.data(), 10, f32});
          }
        },
        {.meanwhile =
             [&](const std::vector<pid_t>& pids) {
               usleep(200'000 + static_cast<useconds_t>(round) * 3'700);
               kill(pids[2], SIGKILL);
             },
         .seconds = 30});
    test::expect_verdicts(outcomes, 2, "");
  }
}

TEST(GlooFault, LateRankIsSaidToBeElsewhere) {
  const auto outcomes = Job{.ranks = 3, .timeout = 0.7}.run([](Communicator& comm) {
    const auto pair = comm.split(comm.rank() == 0 ? 0 : 1, 0, "pair");
    float one = 1;
    // Rank 1 waits in the pair for rank 2, which waits in the world for both.
    if (comm.rank() == 1) {
      usleep(400'000);
      pair->all_reduce({&one, 1, f32}, ReduceOp::sum, {.unit = "shard"});
    } else {
      comm.all_reduce({&one, 1, f32}, ReduceOp::sum, {.unit = "loss"});
    }
  });
  EXPECT_EQ(outcomes[0].text, outcomes[2].text);
  EXPECT_THAT(outcomes[0].text,
              HasSubstr("[all_reduce] expected all 3 ranks in all_reduce #2 of 'world', 1 x "
                        "f32, sum, unit 'loss', got no rank 1: it did not come within 0."));
  EXPECT_THAT(outcomes[0].text, HasSubstr("it is elsewhere: in all_reduce #0 of 'world/pair[1]', 1 "
                                          "x f32, sum, unit 'shard'"));
}

TEST(GlooFault, RankThatLeavesEarlyIsNamed) {
  const auto outcomes = Job{.ranks = 3}.run([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() != 1) comm.barrier();
  });
  EXPECT_EQ(outcomes[0].text, outcomes[2].text);
  EXPECT_EQ(outcomes[0].text,
            "[barrier] expected all 3 ranks in barrier #1 of 'world', got no rank 1: it has left, "
            "last seen in barrier #0 of 'world'");
}

TEST(GlooFault, AbortTellsWhy) {
  const auto outcomes = Job{.ranks = 3}.run([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) comm.abort("no more data");
    comm.barrier();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.text,
              "[communicator] expected all 3 ranks of 'world', got no rank 1: it gave up after "
              "barrier #0 of 'world': no more data");
}

// ---- joining ----

TEST(GlooJoin, MissingRanksAreNamed) {
  const Job job{.ranks = 3, .timeout = 0.4};
  const auto outcomes = test::run_processes(3, [&](int rank) {
    if (rank != 2) job.join(rank);
    return std::string();
  });
  for (const size_t r : {0, 1}) {
    EXPECT_EQ(outcomes[r].code, test::kVerdict);
    EXPECT_EQ(outcomes[r].text,
              "[join_gloo] expected 3 ranks of job '" + job.name + "' within 0.4 s, got no rank 2");
  }
  const auto alone = test::run_processes(1, [&](int) {
    job.join(1);
    return std::string();
  });
  EXPECT_EQ(alone[0].text, concat({"[join_gloo] expected rank 0 of job '", job.name,
                                   "' at 127.0.0.1:", job.port, " within 0.4 s, got nobody"}));
}

TEST(GlooJoin, ADeathWhileJoiningIsNoticedAtOnce) {
  const Job job{.ranks = 3, .timeout = 50};
  const auto outcomes = test::run_processes(3,
                                            [&](int rank) {
                                              if (rank == 2) pause();
                                              job.join(rank);
                                              return std::string();
                                            },
                                            {.meanwhile =
                                                 [](const std::vector<pid_t>& pids) {
                                                   usleep(300'000);
                                                   kill(pids[1], SIGKILL);
                                                 },
                                             .abandoned = {2},
                                             .seconds = 20});
  EXPECT_EQ(outcomes[0].code, test::kVerdict);
  EXPECT_THAT(outcomes[0].text, HasSubstr("got no rank 1: it died (process "));
}

TEST(GlooJoin, RanksOfOtherSizesAndJobsAreRefused) {
  Job job{.timeout = 5};
  const auto sizes = test::run_processes(2, [&](int rank) {
    Job own = job;
    own.ranks = rank + 2;
    own.join(rank);
    return std::string();
  });
  for (const Outcome& outcome : sizes)
    EXPECT_EQ(outcome.text,
              "[join_gloo] expected ranks of 2 in job '" + job.name + "', got rank 1 of 3");
  job.timeout = 1;
  job.port = free_port("127.0.0.1");
  const auto jobs = test::run_processes(2, [&](int rank) {
    Job own = job;
    if (rank == 1) own.name += "-other";
    own.join(rank);
    return std::string();
  });
  EXPECT_THAT(jobs[0].text, HasSubstr("within 1.0 s, got no rank 1"));
  EXPECT_THAT(jobs[1].text, HasSubstr("got one of job '" + job.name + "-other'"));
}

// Whoever knocks at the port without being a rank is passed over.
TEST(GlooJoin, StrangersAreNoRanks) {
  const Job job{.timeout = 20};
  const auto outcomes = test::run_processes(3, [&](int rank) {
    if (rank < 2) {
      if (rank == 1) usleep(300'000);
      const auto comm = job.join(rank);
      comm->barrier();
      return std::string();
    }
    detail::FileDescriptor socket;
    while (!(socket = detail::connect_to("127.0.0.1", job.port, 1)).valid())
      usleep(1000);
    const std::string text = "GET / HTTP/1.1\r\n\r\n and more than a frame may hold";
    if (write(socket.get(), text.data(), text.size()) < 0) return std::string("no write");
    usleep(500'000);
    return std::string();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

TEST(GlooJoin, RefusesRanksAndAddresses) {
  EXPECT_EQ(error_of([] {
              join_gloo({.job = "a", .address = "127.0.0.1", .port = 1, .rank = 2, .size = 2});
            }),
            "[join_gloo] expected a rank out of 2, got 2");
  EXPECT_EQ(error_of([] { join_gloo({.job = "a", .size = 1}); }),
            "[join_gloo] expected the address and the port of rank 0, got '' and 0");
}

}  // namespace
}  // namespace weft::dist
