// The allocator, storages and the ledger they are charged to.
#include "core/allocator.h"
#include "core/ledger.h"
#include "core/storage.h"
#include "core/tensor.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace weft {
namespace {

using test::error_of;

bool is_aligned(const void* block) {
  return reinterpret_cast<uintptr_t>(block) % kAlignment == 0;
}

TEST(Allocator, EverySizeIsAlignedAndWritableToItsEnd) {
  std::vector<int64_t> sizes = {0, 1};
  for (int64_t power = 64; power <= (int64_t{8} << 20); power *= 2) {
    for (const int64_t size :
         {power - 1, power, power + 1, power + power / 8, power + power / 8 + 1, 2 * power - 1}) {
      sizes.push_back(size);
    }
  }
  std::vector<void*> blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    void* block = allocate_cached(sizes[i]);
    ASSERT_TRUE(is_aligned(block)) << sizes[i];
    std::memset(block, static_cast<int>(i), static_cast<size_t>(sizes[i]));
    blocks.push_back(block);
  }
  // No block was written through another.
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(blocks[i]);
    for (int64_t at = 0; at < sizes[i];
         at += std::max<int64_t>(1, sizes[i] - 1)) {  // the first and the last
      ASSERT_EQ(bytes[at], static_cast<unsigned char>(i)) << sizes[i];
    }
    free_cached(blocks[i], sizes[i]);
  }
}

TEST(Allocator, HandsFreedBlocksOutAgain) {
  if (!kCaching) GTEST_SKIP() << "AddressSanitizer sees every block once";
  for (const int64_t bytes : {int64_t{100}, int64_t{20'000}, int64_t{500'000}, int64_t{3} << 20}) {
    void* first = allocate_cached(bytes);
    free_cached(first, bytes);
    void* second = allocate_cached(bytes - 1);  // which the same block serves
    EXPECT_EQ(first, second) << bytes;
    free_cached(second, bytes - 1);
  }
}

TEST(Allocator, ABlockFreedOnAnotherThreadServesAThird) {
  if (!kCaching) GTEST_SKIP() << "AddressSanitizer sees every block once";
  release_cached_memory();
  constexpr int64_t bytes = 3000;
  void* block = allocate_cached(bytes);
  std::thread([&] {
    free_cached(block, bytes);
  }).join();  // its cache goes to the central one as it ends
  void* again = nullptr;
  std::thread([&] {
    again = allocate_cached(bytes);
    free_cached(again, bytes);
  }).join();
  EXPECT_EQ(again, block);
}

TEST(Allocator, SurvivesManyThreadsThatFreeEachOthersBlocks) {
  constexpr int count = 4;
  constexpr int rounds = 400;
  std::vector<std::vector<Tensor>> mail(count);
  for (int round = 0; round < rounds / 100; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        std::vector<Tensor> mine;
        for (int i = 0; i < 100; ++i) {
          const Tensor tensor = empty({(i * 37 + t) % 9000 + 1}, {.dtype = i32});
          tensor.data<int32_t>()[tensor.numel() - 1] = t;
          mine.push_back(tensor);
        }
        for (const Tensor& tensor : mine)
          ASSERT_EQ(tensor.data<int32_t>()[tensor.numel() - 1], t);
        mail[static_cast<size_t>(t)] =
            std::move(mine);  // frees the former round's, made by another thread
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    std::rotate(mail.begin(), mail.begin() + 1, mail.end());
  }
}

TEST(Allocator, AbsurdSizesAreOutOfMemoryAndLeaveTheLedgerAlone) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  for (const int power : {48, 54, 58, 60}) {
    EXPECT_THROW(empty({int64_t{1} << power}, {.dtype = f32}), OutOfMemory) << power;
  }
  EXPECT_THROW(empty({INT64_MAX}, {.dtype = u8}), OutOfMemory);
  EXPECT_EQ(ledger.current_total(), 0);
  EXPECT_EQ(ledger.peak_total(), 0) << "what was never had is no peak";
}

TEST(Ledger, ChargesTheScopesCategory) {
  Ledger ledger;
  const LedgerScope ledger_scope(ledger);
  const Tensor activation = empty({10});
  {
    const CategoryScope scope(Category::parameters);
    const Tensor parameter = empty({100});
    EXPECT_EQ(parameter.storage()->category(), Category::parameters);
    EXPECT_EQ(ledger.current(Category::parameters), 400);
    EXPECT_EQ(ledger.current(Category::activations), 40);
    EXPECT_EQ(ledger.current_total(), 440);
  }
  EXPECT_EQ(current_category(), Category::activations);
  EXPECT_EQ(ledger.current(Category::parameters), 0);
  EXPECT_EQ(ledger.peak(Category::parameters), 400);
  EXPECT_EQ(ledger.peak_total(), 440);
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak(Category::parameters), 0);
  EXPECT_EQ(ledger.peak_total(), 40);
}

TEST(Ledger, CreditsTheLedgerOfTheAllocation) {
  Ledger ours;
  Ledger other;
  Tensor tensor;
  {
    const LedgerScope scope(ours);
    tensor = empty({16}, {.dtype = f64});
  }
  const LedgerScope scope(other);
  EXPECT_EQ(ours.current_total(), 128);
  tensor = {};
  EXPECT_EQ(ours.current_total(), 0);
  EXPECT_EQ(other.current_total(), 0);
}

TEST(Ledger, ViewsAreNotChargedAgain) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  Tensor tensor = empty({4, 4});
  const Tensor view = alias(tensor, {4}, {1});
  const Tensor detached = tensor.detach();
  EXPECT_EQ(ledger.current_total(), 64);
  tensor = {};
  EXPECT_EQ(ledger.current_total(), 64) << "the views still hold the bytes";
}

TEST(Ledger, RechargingMovesBytes) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  const Tensor tensor = empty({25});
  tensor.storage()->recharge(Category::gradients);
  EXPECT_EQ(ledger.current(Category::activations), 0);
  EXPECT_EQ(ledger.current(Category::gradients), 100);
  EXPECT_EQ(ledger.current_total(), 100);
  EXPECT_EQ(ledger.peak_total(), 100);
}

TEST(Ledger, WrappedMemoryIsNotChargedAndIsReleasedOnce) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  float values[4] = {1, 2, 3, 4};
  int released = 0;
  {
    const Ref<Storage> storage = Storage::wrap(values, sizeof values, [&] { ++released; });
    const Tensor tensor = view_of(storage, 4, {3}, {1}, f32);
    EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{2, 3, 4}));
    EXPECT_EQ(ledger.current_total(), 0);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Ledger, TheLimitRefusesAndListsTheLedger) {
  Ledger ledger(1000);
  const LedgerScope scope(ledger);
  const Tensor tensor = empty({200}, {.dtype = f32});
  const std::string error = error_of([] {
    const CategoryScope gradients(Category::gradients);
    (void)empty({51}, {.dtype = f32});
  });
  EXPECT_NE(error.find("[memory] expected at most 1000 B on this rank, got a request of 204 B for "
                       "gradients on top of "
                       "800 B"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("activations           800 B         800 B"), std::string::npos) << error;
  EXPECT_EQ(ledger.current_total(), 800);
  EXPECT_EQ(ledger.peak_total(), 800);
  EXPECT_NO_THROW(empty({50}, {.dtype = f32})) << "to the byte";
  ledger.set_limit(0);
  EXPECT_NO_THROW(empty({1000}));
}

TEST(Ledger, ThreadsTogetherStayWithinTheLimit) {
  Ledger ledger(64 * 100);
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        try {
          ledger.charge(Category::other, 64);
          ++granted;
        } catch (const OutOfMemory&) {
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(granted, 100);
  EXPECT_EQ(ledger.current_total(), 6400);
  EXPECT_EQ(ledger.peak_total(), 6400);
}

TEST(Ledger, ScopesBelongToTheirThread) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  const CategoryScope category(Category::data);
  std::thread([&] {
    EXPECT_NE(&current_ledger(), &ledger);
    EXPECT_EQ(current_category(), Category::activations);
  }).join();
  EXPECT_EQ(&current_ledger(), &ledger);
}

TEST(Ledger, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 30), "5.00 GiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 50), "3072.00 TiB");
}

}  // namespace
}  // namespace weft
