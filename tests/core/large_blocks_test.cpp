// The range of addresses that large blocks come from: what is free joins, and nothing overlaps.
#include "core/detail/large_blocks.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace weft::detail {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

TEST(LargeBlocks, GivesTheSameMemoryToOtherSizes) {
  LargeBlocks blocks(64 * kMega);
  void* a = blocks.allocate(3 * kMega);
  void* b = blocks.allocate(5 * kMega);
  EXPECT_EQ(static_cast<std::byte*>(b), static_cast<std::byte*>(a) + 3 * kMega);
  EXPECT_EQ(blocks.reach(), 8 * kMega);
  blocks.free(a, 3 * kMega);
  blocks.free(b, 5 * kMega);
  void* whole = blocks.allocate(8 * kMega);  // both, joined
  EXPECT_EQ(whole, a);
  EXPECT_EQ(blocks.reach(), 8 * kMega);
  blocks.free(whole, 8 * kMega);
}

TEST(LargeBlocks, JoinsOnEitherSideAndGrowsFromWhatIsFreeAtTheEnd) {
  LargeBlocks blocks(64 * kMega);
  std::vector<std::byte*> four;
  for (int i = 0; i < 4; ++i)
    four.push_back(static_cast<std::byte*>(blocks.allocate(2 * kMega)));
  blocks.free(four[0], 2 * kMega);
  blocks.free(four[2], 2 * kMega);
  blocks.free(four[1], 2 * kMega);  // between two free ones
  EXPECT_EQ(blocks.allocate(6 * kMega), four[0]);
  blocks.free(four[3], 2 * kMega);
  EXPECT_EQ(blocks.allocate(10 * kMega), four[3]);  // the free end and 8 MiB beyond it
  EXPECT_EQ(blocks.reach(), 16 * kMega);
}

TEST(LargeBlocks, TakesTheSmallestThatIsLargeEnough) {
  LargeBlocks blocks(64 * kMega);
  void* large = blocks.allocate(8 * kMega);
  void* between = blocks.allocate(kMega);
  void* small = blocks.allocate(2 * kMega);
  blocks.allocate(kMega);
  blocks.free(large, 8 * kMega);
  blocks.free(small, 2 * kMega);
  EXPECT_EQ(blocks.allocate(2 * kMega), small);
  EXPECT_EQ(blocks.allocate(8 * kMega), large);
  EXPECT_NE(between, nullptr);
}

TEST(LargeBlocks, SaysWhenAddressesAreUsedUp) {
  LargeBlocks blocks(4 * kMega);
  EXPECT_EQ(blocks.allocate(5 * kMega), nullptr);
  void* all = blocks.allocate(4 * kMega);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(blocks.allocate(kMega), nullptr);
  EXPECT_TRUE(blocks.holds(all));
  EXPECT_TRUE(blocks.holds(static_cast<std::byte*>(all) + 4 * kMega - 1));
  EXPECT_FALSE(blocks.holds(static_cast<std::byte*>(all) + 4 * kMega));
  int here = 0;
  EXPECT_FALSE(blocks.holds(&here));
  blocks.free(all, 4 * kMega);
  EXPECT_EQ(blocks.allocate(kMega), all);
}

TEST(LargeBlocks, WithoutAddressesThereAreNone) {
  LargeBlocks blocks(int64_t{1} << 60);  // more than a process can have
  EXPECT_EQ(blocks.allocate(kMega), nullptr);
  int here = 0;
  EXPECT_FALSE(blocks.holds(&here));
  blocks.release();
}

TEST(LargeBlocks, ReleasedMemoryIsThereAgainWhenItIsWanted) {
  LargeBlocks blocks(16 * kMega);
  void* block = blocks.allocate(4 * kMega);
  std::memset(block, 7, 4 * kMega);
  void* kept = blocks.allocate(kMega);
  std::memset(kept, 9, kMega);
  blocks.free(block, 4 * kMega);
  blocks.release();
  auto* again = static_cast<unsigned char*>(blocks.allocate(4 * kMega));
  ASSERT_EQ(again, block);
  EXPECT_EQ(again[123], 0) << "the system has not taken it back";
  std::memset(again, 1, 4 * kMega);
  EXPECT_EQ(static_cast<unsigned char*>(kept)[kMega - 1], 9);
}

// Not a promise that ends in the process being killed when it is used.
TEST(LargeBlocks, MoreThanTheMachineHasIsRefused) {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = 1;
  file >> mode;
  if (mode == 1) GTEST_SKIP() << "this machine promises any memory";
  struct sysinfo machine {};
  ASSERT_EQ(sysinfo(&machine), 0);
  const auto all = static_cast<int64_t>((machine.totalram + machine.totalswap) * machine.mem_unit);
  LargeBlocks blocks(4 * all);
  EXPECT_EQ(blocks.allocate(2 * all), nullptr);
  EXPECT_NE(blocks.allocate(kMega), nullptr);
}

// Random sizes on several threads: what is written into a block stays until it is freed.
TEST(LargeBlocks, NoTwoOverlap) {
  LargeBlocks blocks(512 * kMega);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&blocks, seed] {
      std::mt19937 random(seed);
      std::map<std::byte*, int64_t> mine;
      for (int turn = 0; turn < 3000; ++turn) {
        if (mine.size() < 12 && random() % 2 == 0) {
          const auto bytes = static_cast<int64_t>(kMega + random() % (4 * kMega));
          auto* block = static_cast<std::byte*>(blocks.allocate(bytes));
          ASSERT_NE(block, nullptr);
          block[0] = block[bytes - 1] = block[bytes / 2] = std::byte(seed + 1);
          mine[block] = bytes;
        } else if (!mine.empty()) {
          auto one = mine.begin();
          std::advance(one, random() % mine.size());
          const auto [block, bytes] = *one;
          ASSERT_EQ(block[0], std::byte(seed + 1));
          ASSERT_EQ(block[bytes / 2], std::byte(seed + 1));
          ASSERT_EQ(block[bytes - 1], std::byte(seed + 1));
          blocks.free(block, bytes);
          mine.erase(one);
        }
      }
      for (const auto& [block, bytes] : mine)
        blocks.free(block, bytes);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  // All joined again: everything fits into what there is.
  const int64_t reach = blocks.reach();
  EXPECT_NE(blocks.allocate(reach), nullptr);
  EXPECT_EQ(blocks.reach(), reach);
}

}  // namespace
}  // namespace weft::detail
