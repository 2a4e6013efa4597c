#include "core/parallel.h"

#include "core/ledger.h"
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace weft {
namespace {

class Parallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    before_ = num_threads();
    set_num_threads(GetParam());
  }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = 1;
};

TEST_P(Parallel, CoversTheRangeOnceWithBordersAtMultiplesOfTheGrain) {
  for (const int64_t size : {0, 1, 7, 16, 17, 100, 1000}) {
    for (const int64_t grain : {1, 3, 16, 2000}) {
      constexpr int64_t begin = 5;
      std::vector<std::atomic<int>> visits(static_cast<size_t>(size));
      std::atomic<bool> good{true};
      parallel_for(begin, begin + size, grain, [&](int64_t first, int64_t last) {
        if (first >= last || (first - begin) % grain != 0) good = false;
        if (last != begin + size && (last - begin) % grain != 0) good = false;
        for (int64_t i = first; i < last; ++i)
          ++visits[static_cast<size_t>(i - begin)];
      });
      EXPECT_TRUE(good) << size << " by " << grain;
      for (const auto& count : visits)
        ASSERT_EQ(count, 1) << size << " by " << grain;
    }
  }
}

TEST_P(Parallel, AnEmptyOrBackwardRangeRunsNothing) {
  int calls = 0;
  parallel_for(3, 3, 1, [&](int64_t, int64_t) { ++calls; });
  parallel_for(5, 3, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST_P(Parallel, RethrowsAfterAllPiecesHaveEnded) {
  std::atomic<int> running{0};
  std::atomic<int64_t> done{0};
  try {
    parallel_for(0, 64, 1, [&](int64_t first, int64_t last) {
      ++running;
      if (first == 0) {
        --running;
        throw std::runtime_error("the first piece");
      }
      std::this_thread::yield();
      done += last - first;
      --running;
    });
    FAIL() << "expected the exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the first piece");
  }
  EXPECT_EQ(running, 0);
  EXPECT_TRUE(GetParam() == 1 || done > 0) << "the other pieces run to their end";
}

TEST_P(Parallel, OneOfSeveralExceptionsArrives) {
  EXPECT_THROW(parallel_for(0, 64, 1, [](int64_t, int64_t) { throw std::logic_error("each"); }),
               std::logic_error);
  std::atomic<int64_t> sum{0};
  parallel_for(0, 64, 1, [&](int64_t first, int64_t last) { sum += last - first; });
  EXPECT_EQ(sum, 64) << "the next loop works";
}

TEST_P(Parallel, NestedCallsRunInPlace) {
  std::atomic<int64_t> sum{0};
  std::atomic<bool> same_thread{true};
  parallel_for(0, 32, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto outer = std::this_thread::get_id();
      parallel_for(0, 32, 1, [&](int64_t from, int64_t to) {
        if (GetParam() > 1 && std::this_thread::get_id() != outer) same_thread = false;
        sum += to - from;
      });
    }
  });
  EXPECT_EQ(sum, 32 * 32);
  EXPECT_TRUE(same_thread);
}

TEST_P(Parallel, PiecesChargeTheCallersLedgerAndCategory) {
  Ledger ledger;
  const LedgerScope ledger_scope(ledger);
  const CategoryScope category_scope(Category::data);
  std::vector<Tensor> tensors(64);
  parallel_for(0, 64, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      tensors[static_cast<size_t>(i)] = empty({25});
  });
  EXPECT_EQ(ledger.current(Category::data), 6400);
  EXPECT_EQ(ledger.current_total(), 6400);
}

TEST_P(Parallel, SeveralThreadsMayCallAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> sum{0};
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      set_num_threads(rank + 1);  // each rank has its own count
      for (int i = 0; i < 20; ++i) {
        parallel_for(0, 100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
      }
      EXPECT_EQ(num_threads(), rank + 1);
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  EXPECT_EQ(sum, 6000);
  EXPECT_EQ(num_threads(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Threads, Parallel, testing::Values(1, 2, 4));

TEST(NumThreads, RefusesLessThanOne) {
  EXPECT_THROW(set_num_threads(0), Error);
}

}  // namespace
}  // namespace weft
