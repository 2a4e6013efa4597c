// Ranks that share hosts: what they cannot tell from hosts of one rank each, and what becomes of
// them when one fails. The hosts are this one under several names; scripts/two_hosts_test.sh has
// two with addresses of their own and looks at what passes between them.
#include "dist/tcp.h"
#include "dist/thread_ranks.h"
#include "tests/support/collective_checks.h"
#include "tests/support/rank_faults.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

namespace weft::dist {
namespace {

using test::Outcome;

struct Layout {
  int hosts = 2;
  int places = 2;
};

struct HostsJob {
  Layout layout = {};
  double timeout = 60;
  std::string name = test::fresh_job_name();
  int port = free_port("127.0.0.1");

  int ranks() const { return layout.hosts * layout.places; }
  std::unique_ptr<Communicator> join(int rank) const {
    return join_tcp({.job = name,
                     .address = "127.0.0.1",
                     .port = port,
                     .rank = rank,
                     .size = ranks(),
                     .local_rank = rank % layout.places,
                     .local_size = layout.places},
                    {.timeout_seconds = timeout});
  }
  std::vector<Outcome> run(const std::function<void(Communicator&)>& body,
                           const test::ProcessesOptions& options = {}) const {
    return test::run_processes(
        ranks(),
        [&](int rank) {
          const auto comm = join(rank);
          body(*comm);
          return std::string();
        },
        options);
  }
};

class TcpHosts : public testing::TestWithParam<Layout> {
 protected:
  void run_all(const std::function<void(Communicator&)>& body) {
    const auto outcomes = HostsJob{.layout = GetParam()}.run(body);
    for (const Outcome& outcome : outcomes)
      EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, TcpHosts,
                         testing::Values(Layout{2, 2}, Layout{3, 2}, Layout{2, 3}));

TEST_P(TcpHosts, Collectives) {
  run_all(test::check_all_collectives);
}

// Beyond what ranks exchange when they meet; several rounds, of counts that ranks share unevenly.
TEST_P(TcpHosts, Large) {
  run_all([](Communicator& comm) {
    test::check_collectives(comm, f32, 2'500'001 / comm.size(), false);
    test::check_collectives(comm, bf16, 2'500'001 / comm.size(), true);
    test::check_node_sums(comm, 5, 600'001 / comm.size());
    test::check_node_sums(comm, 8, 300'000);
  });
}

TEST_P(TcpHosts, StartedCallsAndGroups) {
  run_all([](Communicator& comm) {
    test::check_started(comm);
    test::check_split(comm);
  });
}

TEST_P(TcpHosts, SumsHaveTheBitsOfThreadRanks) {
  const HostsJob job{.layout = GetParam()};
  uint64_t expected = 0;
  run_thread_ranks(job.ranks(), [&](Communicator& comm) {
    const uint64_t digest = test::digest_of_sums(comm);
    if (comm.rank() == 0) expected = digest;
  });
  const auto outcomes = test::run_processes(job.ranks(), [&](int rank) {
    const auto comm = job.join(rank);
    return std::to_string(test::digest_of_sums(*comm));
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.text, std::to_string(expected));
}

// Hosts with unlike numbers of ranks, and ranks that are not numbered host by host, talk over TCP.
TEST(TcpHostsUneven, AllTheSame) {
  const HostsJob job{.layout = {.hosts = 1, .places = 3}};
  const auto outcomes = test::run_processes(3, [&](int rank) {
    const auto comm = join_tcp({.job = job.name,
                                .address = "127.0.0.1",
                                .port = job.port,
                                .rank = rank,
                                .size = 3,
                                .local_rank = rank == 2 ? 0 : rank,
                                .local_size = rank == 2 ? 1 : 2},
                               {.timeout_seconds = 60});
    test::check_collectives(*comm, f32, 200'000, false);
    return std::string();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

// ---- ranks that fail ----

std::vector<Outcome> run_hosts_fault(int victim, int point, const test::RankFault& fault,
                                     double timeout, bool abandoned = false) {
  const HostsJob job{.timeout = timeout};
  return job.run(
      [&](Communicator& comm) {
        test::work_until_fault(comm, comm.rank() == victim ? point : -1, fault);
      },
      {.abandoned = abandoned ? std::vector<int>{victim} : std::vector<int>{}, .seconds = 50});
}

class TcpHostsFaultAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Points, TcpHostsFaultAt, testing::Range(0, test::kFaultPoints, 2));

TEST_P(TcpHostsFaultAt, KilledRank) {
  for (const int victim : {0, 3}) {
    const auto outcomes = run_hosts_fault(
        victim, GetParam(), [] { raise(SIGKILL); }, 100);
    EXPECT_EQ(outcomes[static_cast<size_t>(victim)].signal, SIGKILL);
    test::expect_verdicts(outcomes, victim, "died (process ");
  }
}

TEST_P(TcpHostsFaultAt, RankThatThrows) {
  const auto outcomes = run_hosts_fault(
      2, GetParam(), [] { throw Error("bad sample"); }, 100);
  EXPECT_EQ(outcomes[2].text, "bad sample");
  test::expect_verdicts(outcomes, 2, "it gave up");
}

TEST(TcpHostsFault, StoppedRank) {
  const auto outcomes = run_hosts_fault(
      1, 3, [] { raise(SIGSTOP); }, 0.7, true);
  test::expect_verdicts(outcomes, 1, "and does not answer");
}

// Memory runs out on the thread that carries data between the hosts: there is room for what the
// hosts' sums lie in, not for what comes from others.
TEST(TcpHostsFault, RankWithoutMemoryBetweenTheHosts) {
  const HostsJob job;
  const auto outcomes = test::run_processes(4, [&](int rank) {
    Ledger ledger(rank == 0 ? (2 << 20) + 4096 : 0);
    const LedgerScope scope(ledger);
    const auto comm = job.join(rank);
    std::vector<float> memory(1 << 19);
    comm->all_reduce({memory.data(), 1 << 19, f32});
    return std::string();
  });
  EXPECT_EQ(outcomes[0].code, test::kThrew) << outcomes[0].signal;
  EXPECT_THAT(outcomes[0].text, testing::HasSubstr("[memory]"));
  for (size_t r = 1; r < 4; ++r) {
    EXPECT_EQ(outcomes[r].code, test::kVerdict) << r;
    EXPECT_THAT(outcomes[r].text, testing::HasSubstr("got no rank 0")) << r;
  }
}

// In the midst of a sum, within the host or between the hosts.
TEST(TcpHostsFault, KilledOrStoppedAtAnyMoment) {
  for (int round = 0; round < 4; ++round) {
    const bool stops = round == 3;
    const int victim = round % test::kFaultRanks;
    const HostsJob job{.timeout = stops ? 0.7 : 60};
    const auto outcomes = job.run(
        [](Communicator& comm) {
          std::vector<float> memory(1 << 20);
          for (;;)
            comm.all_reduce({memory.data(), 1 << 20, f32});
        },
        {.meanwhile =
             [&](const std::vector<pid_t>& pids) {
               usleep(300'000 + static_cast<useconds_t>(round) * 3'700);
               kill(pids[static_cast<size_t>(victim)], stops ? SIGSTOP : SIGKILL);
             },
         .abandoned = stops ? std::vector<int>{victim} : std::vector<int>{},
         .seconds = 30});
    test::expect_verdicts(outcomes, victim, "");
  }
}

}  // namespace
}  // namespace weft::dist
