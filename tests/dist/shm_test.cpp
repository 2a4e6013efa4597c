#include "dist/shm.h"

#include "dist/detail/shared_memory.h"
#include "tests/support/collective_checks.h"
#include "tests/support/processes.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

namespace weft::dist {
namespace {

using test::error_of;
using test::Outcome;
using testing::HasSubstr;

// Every rank joins, runs the body, and leaves; all must return.
void run_shm(int ranks, const std::function<void(Communicator&)>& body) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(ranks, [&](int rank) {
    const auto comm = join_shm(job, rank, ranks, {.timeout_seconds = 60});
    body(*comm);
    return std::string();
  });
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(outcomes[static_cast<size_t>(r)].code, test::kReturned)
        << "rank " << r << ": " << outcomes[static_cast<size_t>(r)].text;
  EXPECT_THAT(test::leftovers(), testing::IsEmpty());
}

class Shm : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Shm, testing::Values(1, 2, 3, 4, 8));

TEST_P(Shm, Collectives) {
  run_shm(GetParam(), test::check_all_collectives);
}

// More than the windows hold at a time: 2^18 elements, for all pieces together.
TEST_P(Shm, LargeInOrdinaryMemory) {
  run_shm(GetParam(), [](Communicator& comm) {
    test::check_collectives(comm, f32, 600'001 / comm.size(), false);
    test::check_node_sums(comm, 5, 200'001 / comm.size());
  });
}

TEST_P(Shm, NodeSums) {
  run_shm(GetParam(), [](Communicator& comm) {
    for (const int64_t leaves : {1, 2, 3, 5, 8, 13})
      test::check_node_sums(comm, leaves, 50);
    test::check_node_sums(comm, 8, 3000);
    test::check_node_sums(comm, 40, 20);
  });
}

TEST_P(Shm, StartedCalls) {
  run_shm(GetParam(), test::check_started);
}

TEST_P(Shm, Split) {
  run_shm(GetParam(), [](Communicator& comm) {
    for (int i = 0; i < 5; ++i)
      test::check_split(comm);
  });
}

TEST(Shm, AllocatedMemoryIsZeroChargedAndOutlivesItsCommunicator) {
  run_shm(2, [](Communicator& comm_of_job) {
    (void)comm_of_job;
    const std::string job = concat({"inner-", static_cast<int64_t>(getppid())});
    auto comm = join_shm(job, comm_of_job.rank(), 2);
    const CategoryScope category(Category::gradients);
    const int64_t before = current_ledger().current(Category::gradients);
    Ref<Storage> kept;
    for (const int64_t bytes : {0, 1, 1000, 4096, 100'000, 3, 5'000'000, 1000}) {
      const Ref<Storage> a = comm->allocate(bytes);
      const Ref<Storage> b = comm->allocate(bytes);
      if (current_ledger().current(Category::gradients) - before !=
          2 * bytes + (kept ? kept->bytes() : 0)) {
        throw Error("allocated memory is not charged");
      }
      for (const auto& storage : {a, b}) {
        if (reinterpret_cast<uintptr_t>(storage->data()) % 64 != 0) throw Error("not aligned");
        for (int64_t i = 0; i < bytes; ++i) {
          if (storage->data()[i] != std::byte{0}) throw Error("memory is not zero");
          storage->data()[i] = std::byte{7};
        }
      }
      kept = a;
    }
    comm.reset();
    kept->data()[0] = std::byte{1};
    kept = nullptr;
    if (current_ledger().current(Category::gradients) != before)
      throw Error("freed memory is still charged");
    Ledger small(1000);
    const LedgerScope scope(small);
    if (error_of([&] { comm_of_job.allocate(2000); }).find("[memory] expected at most") != 0)
      throw Error("the ledger's limit does not hold");
    comm_of_job.allocate(900);
  });
}

TEST(ShmJoin, RefusesNamesAndRanks) {
  EXPECT_EQ(error_of([] { join_shm("a b", 0, 1); }),
            "[join_shm] expected a job name of 1 to 64 letters, digits and dashes, got 'a b'");
  EXPECT_EQ(error_of([] { join_shm("a", 2, 2); }), "[join_shm] expected a rank out of 2, got 2");
}

TEST(ShmJoin, ANameIsFreeAgainOnceAllHaveJoined) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(2, [&](int rank) {
    for (int i = 0; i < 10; ++i) {
      const auto first = join_shm(job, rank, 2);
      first->barrier();
      const auto second = join_shm(job, rank, 2);
      second->barrier();
      first->barrier();
    }
    return std::string();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

TEST(ShmJoin, MissingRanksAreNamed) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(3, [&](int rank) {
    if (rank != 2) join_shm(job, rank, 3, {.timeout_seconds = 0.3});
    return std::string();
  });
  for (const size_t r : {0, 1}) {
    EXPECT_EQ(outcomes[r].code, test::kVerdict);
    EXPECT_EQ(outcomes[r].text,
              "[join_shm] expected 3 ranks of job '" + job + "' within 0.3 s, got no rank 2");
  }
  const auto alone = test::run_processes(1, [&](int) {
    join_shm(job, 1, 2, {.timeout_seconds = 0.1});
    return std::string();
  });
  EXPECT_EQ(alone[0].text,
            "[join_shm] expected rank 0 of job '" + job + "' within 0.1 s, got nobody");
}

// Rank 1 connects twice, and says nothing the first time.
TEST(ShmJoin, WhoSaysNothingHoldsNobodyUp) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(2, [&](int rank) {
    const detail::FileDescriptor silent(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = concat({"weft-shm-", static_cast<int64_t>(geteuid()), "-", job});
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    while (rank == 1 &&
           connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      usleep(1000);
    }
    join_shm(job, rank, 2, {.timeout_seconds = 5})->barrier();
    return std::string();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

TEST(ShmJoin, HeapsOfAllRanksFitIntoTheAddressesOfAProcess) {
  constexpr size_t kGib = size_t{1} << 30;
  EXPECT_EQ(detail::heap_bytes(16 * kGib - 4096, 8), 16 * kGib);
  for (const int ranks : {1, 63, 64, 128, 192, 1024}) {
    const size_t bytes = detail::heap_bytes(1024 * kGib, ranks);
    EXPECT_EQ(bytes % (size_t{1} << 21), 0U);
    EXPECT_LE(bytes * static_cast<size_t>(ranks), 64 * 1024 * kGib);
    EXPECT_EQ(bytes == 1024 * kGib, ranks <= 64) << "no smaller than need be";
  }
}

TEST(ShmJoin, ADeathWhileJoiningIsNoticedAtOnce) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(3,
                                            [&](int rank) {
                                              if (rank == 2) pause();
                                              join_shm(job, rank, 3, {.timeout_seconds = 50});
                                              return std::string();
                                            },
                                            {.meanwhile =
                                                 [](const std::vector<pid_t>& pids) {
                                                   usleep(200'000);
                                                   kill(pids[1], SIGKILL);
                                                 },
                                             .abandoned = {2},
                                             .seconds = 20});
  EXPECT_EQ(outcomes[0].code, test::kVerdict);
  EXPECT_THAT(outcomes[0].text, HasSubstr("got no rank 1: it died (process "));
}

TEST(ShmJoin, RanksOfDifferentSizesAreRefused) {
  const std::string job = test::fresh_job_name();
  const auto outcomes = test::run_processes(2, [&](int rank) {
    join_shm(job, rank, rank + 2, {.timeout_seconds = 5});
    return std::string();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, test::kVerdict);
    EXPECT_EQ(outcome.text, "[join_shm] expected ranks of 2 in job '" + job + "', got rank 1 of 3");
  }
}

}  // namespace
}  // namespace weft::dist
