#include "dist/thread_ranks.h"

#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/collective_checks.h"
#include "tests/support/tensors.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace weft::dist {
namespace {

using test::error_of;

class ThreadRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadRanks, testing::Values(1, 2, 3, 4, 8));

TEST_P(ThreadRanks, Collectives) {
  run_thread_ranks(GetParam(), test::check_all_collectives);
}

TEST_P(ThreadRanks, NodeSums) {
  run_thread_ranks(GetParam(), [](Communicator& comm) {
    for (const int64_t leaves : {1, 2, 3, 5, 8, 13})
      test::check_node_sums(comm, leaves, 50);
    test::check_node_sums(comm, 8, 3000);
    test::check_node_sums(comm, 40, 20);
  });
}

TEST_P(ThreadRanks, StartedCalls) {
  run_thread_ranks(GetParam(), test::check_started);
}

TEST_P(ThreadRanks, Split) {
  run_thread_ranks(GetParam(), test::check_split);
}

TEST(ThreadRanks, EachHasItsOwnContext) {
  std::atomic<int> right{0};
  run_thread_ranks(
      3,
      [&](Communicator& comm) {
        EXPECT_EQ(num_threads(), 2);
        EXPECT_EQ(random_state().seed, 42u);
        EXPECT_EQ(comm.backend(), std::string("thread"));
        const Tensor x = empty({1000 * (comm.rank() + 1)});
        if (current_ledger().current(Category::activations) == 4000 * (comm.rank() + 1)) ++right;
        EXPECT_NE(error_of([] { empty({1 << 20}); }).find("[memory] expected at most"),
                  std::string::npos);
      },
      {.threads_per_rank = 2, .seed = 42, .memory_limit = 1 << 20});
  EXPECT_EQ(right, 3);
}

TEST(ThreadRanks, AllocatedMemoryIsZeroAndCharged) {
  run_thread_ranks(2, [](Communicator& comm) {
    const CategoryScope category(Category::gradients);
    {
      const Ref<Storage> storage = comm.allocate(1000);
      EXPECT_EQ(current_ledger().current(Category::gradients), 1000);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0u);
      for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(storage->data()[i], std::byte{0});
      std::fill_n(storage->data(), 1000, std::byte{7});
    }
    EXPECT_EQ(current_ledger().current(Category::gradients), 0);
    const Ref<Storage> again = comm.allocate(1000);
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(again->data()[i], std::byte{0});
    EXPECT_EQ(comm.allocate(0)->bytes(), 0);
  });
}

}  // namespace
}  // namespace weft::dist
