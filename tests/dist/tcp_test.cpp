// Ranks over TCP on this host: the same checks as for other backends, and what happens to ranks
// that fail.
#include "dist/tcp.h"

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
  bool by_gloo = false;

  std::unique_ptr<Communicator> join(int rank) const {
    return join_tcp({.job = name,
                     .address = "127.0.0.1",
                     .port = port,
                     .rank = rank,
                     .size = ranks,
                     .by_gloo = by_gloo},
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

struct Ranks {
  int count = 2;
  bool by_gloo = false;
};

void run_tcp(const Ranks& ranks, const std::function<void(Communicator&)>& body) {
  const auto outcomes = Job{.ranks = ranks.count, .by_gloo = ranks.by_gloo}.run(body);
  for (int r = 0; r < ranks.count; ++r)
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].code, test::kReturned)
        << "rank " << r << ": " << outcomes[static_cast<size_t>(r)].text;
}

class Tcp : public testing::TestWithParam<Ranks> {};
std::string name_of_ranks(const testing::TestParamInfo<Ranks>& info) {
  return concat({info.param.by_gloo ? "gloo_" : "tcp_", info.param.count});
}
INSTANTIATE_TEST_SUITE_P(Ranks, Tcp,
                         testing::Values(Ranks{1}, Ranks{2}, Ranks{3}, Ranks{4}, Ranks{8},
                                         Ranks{2, true}, Ranks{3, true}, Ranks{8, true}),
                         name_of_ranks);

TEST_P(Tcp, Collectives) {
  run_tcp(GetParam(), test::check_all_collectives);
}

// More than the chunks under way hold at a time.
TEST_P(Tcp, Large) {
  run_tcp(GetParam(), [](Communicator& comm) {
    test::check_collectives(comm, f32, 2'000'001 / comm.size(), false);
    test::check_node_sums(comm, 5, 600'001 / comm.size());
  });
}

TEST_P(Tcp, NodeSums) {
  run_tcp(GetParam(), [](Communicator& comm) {
    for (const int64_t leaves : {1, 2, 3, 5, 8, 13})
      test::check_node_sums(comm, leaves, 50);
    test::check_node_sums(comm, 8, 3000);
    test::check_node_sums(comm, 40, 20);
  });
}

TEST_P(Tcp, StartedCalls) {
  run_tcp(GetParam(), test::check_started);
}

TEST_P(Tcp, Split) {
  run_tcp(GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 5; ++i)
      test::check_split(comm);
  });
}

TEST_P(Tcp, SumsHaveTheBitsOfThreadRanks) {
  uint64_t expected = 0;
  run_thread_ranks(GetParam().count, [&](Communicator& comm) {
    const uint64_t digest = test::digest_of_sums(comm);
    if (comm.rank() == 0) expected = digest;
  });
  const Job job{.ranks = GetParam().count, .by_gloo = GetParam().by_gloo};
  const auto outcomes = test::run_processes(job.ranks, [&](int rank) {
    const auto comm = job.join(rank);
    return std::to_string(test::digest_of_sums(*comm));
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.text, std::to_string(expected));
}

TEST(TcpContract, DifferencesAreNamedOnEveryRankAndDataStayUntouched) {
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

TEST(TcpContract, SendAndReceiveAreComparedToo) {
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

TEST(TcpContract, DifferencesWithinAGroupLeaveTheWorldWhole) {
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

// Where the fault happens, and by what data travel.
struct FaultAt {
  int point = 0;
  bool by_gloo = false;
};

std::vector<FaultAt> every(int step, int gloo_step) {
  std::vector<FaultAt> all;
  for (int point = 0; point < test::kFaultPoints; point += step)
    all.push_back({point});
  for (int point = 0; point < test::kFaultPoints; point += gloo_step)
    all.push_back({point, true});
  return all;
}

std::string name_of_fault(const testing::TestParamInfo<FaultAt>& info) {
  return concat({info.param.by_gloo ? "gloo_" : "tcp_", info.param.point});
}

std::vector<Outcome> run_tcp_fault(int victim, const FaultAt& at, const RankFault& fault,
                                   double timeout, bool abandoned = false) {
  const Job job{.ranks = test::kFaultRanks, .timeout = timeout, .by_gloo = at.by_gloo};
  return job.run(
      [&](Communicator& comm) {
        test::work_until_fault(comm, comm.rank() == victim ? at.point : -1, fault);
      },
      {.abandoned = abandoned ? std::vector<int>{victim} : std::vector<int>{}, .seconds = 50});
}

class TcpFaultAt : public testing::TestWithParam<FaultAt> {};
INSTANTIATE_TEST_SUITE_P(Points, TcpFaultAt, testing::ValuesIn(every(1, 4)), name_of_fault);

TEST_P(TcpFaultAt, KilledRank) {
  const double start = clock_seconds();
  const auto outcomes = run_tcp_fault(
      2, GetParam(), [] { raise(SIGKILL); }, 100);
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  test::expect_verdicts(outcomes, 2, "died (process ");
  EXPECT_LT(clock_seconds() - start, 40) << "noticed by the timeout only";
}

TEST_P(TcpFaultAt, KilledRankZero) {
  const auto outcomes = run_tcp_fault(
      0, GetParam(), [] { raise(SIGKILL); }, 100);
  test::expect_verdicts(outcomes, 0, "no rank 0: it died (process ");
  EXPECT_EQ(outcomes[1].text, outcomes[2].text);
}

TEST_P(TcpFaultAt, RankThatExits) {
  test::expect_verdicts(run_tcp_fault(
                            2, GetParam(), [] { _exit(0); }, 100),
                        2, "died (process ");
}

TEST_P(TcpFaultAt, RankThatThrows) {
  const auto outcomes = run_tcp_fault(
      2, GetParam(), [] { throw Error("bad sample"); }, 100);
  EXPECT_EQ(outcomes[2].text, "bad sample");
  test::expect_verdicts(outcomes, 2, "it gave up");
}

// Waits for the timeout, so a part of the points.
class TcpStoppedAt : public testing::TestWithParam<FaultAt> {};
INSTANTIATE_TEST_SUITE_P(Points, TcpStoppedAt, testing::ValuesIn(every(3, 6)), name_of_fault);

TEST_P(TcpStoppedAt, StoppedRank) {
  const auto outcomes = run_tcp_fault(
      2, GetParam(), [] { raise(SIGSTOP); }, 0.7, true);
  test::expect_verdicts(outcomes, 2, "and does not answer");
}

TEST(TcpFault, KilledAtAnyMoment) {
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

TEST(TcpFault, LateRankIsSaidToBeElsewhere) {
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

TEST(TcpFault, RankThatLeavesEarlyIsNamed) {
  const auto outcomes = Job{.ranks = 3}.run([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() != 1) comm.barrier();
  });
  EXPECT_EQ(outcomes[0].text, outcomes[2].text);
  EXPECT_EQ(outcomes[0].text,
            "[barrier] expected all 3 ranks in barrier #1 of 'world', got no rank 1: it has left, "
            "last seen in barrier #0 of 'world'");
}

TEST(TcpFault, AbortTellsWhy) {
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

TEST(TcpJoin, MissingRanksAreNamed) {
  const Job job{.ranks = 3, .timeout = 0.4};
  const auto outcomes = test::run_processes(3, [&](int rank) {
    if (rank != 2) job.join(rank);
    return std::string();
  });
  for (const size_t r : {0, 1}) {
    EXPECT_EQ(outcomes[r].code, test::kVerdict);
    EXPECT_EQ(outcomes[r].text,
              "[join_tcp] expected 3 ranks of job '" + job.name + "' within 0.4 s, got no rank 2");
  }
  const auto alone = test::run_processes(1, [&](int) {
    job.join(1);
    return std::string();
  });
  EXPECT_EQ(alone[0].text, concat({"[join_tcp] expected rank 0 of job '", job.name,
                                   "' at 127.0.0.1:", job.port, " within 0.4 s, got nobody"}));
}

TEST(TcpJoin, ADeathWhileJoiningIsNoticedAtOnce) {
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

TEST(TcpJoin, RanksOfOtherSizesAndJobsAreRefused) {
  Job job{.timeout = 5};
  const auto sizes = test::run_processes(2, [&](int rank) {
    Job own = job;
    own.ranks = rank + 2;
    own.join(rank);
    return std::string();
  });
  for (const Outcome& outcome : sizes)
    EXPECT_EQ(outcome.text,
              "[join_tcp] expected ranks of 2 in job '" + job.name + "', got rank 1 of 3");
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
TEST(TcpJoin, StrangersAreNoRanks) {
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

TEST(TcpJoin, RefusesRanksAndAddresses) {
  EXPECT_EQ(error_of([] {
              join_tcp({.job = "a", .address = "127.0.0.1", .port = 1, .rank = 2, .size = 2});
            }),
            "[join_tcp] expected a rank out of 2, got 2");
  EXPECT_EQ(error_of([] { join_tcp({.job = "a", .size = 1}); }),
            "[join_tcp] expected the address and the port of rank 0, got '' and 0");
}

}  // namespace
}  // namespace weft::dist
