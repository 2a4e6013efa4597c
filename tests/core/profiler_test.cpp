// The profiler's accounts: what counts for whom.
#include "core/profiler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <thread>

namespace weft {
namespace {

const ProfileEntry* find(const Profiler& profiler, const void* layer, std::string_view op,
                         bool backward = false) {
  for (const ProfileEntry& entry : profiler.entries()) {
    if (entry.layer == layer && entry.op == op && entry.backward == backward) return &entry;
  }
  return nullptr;
}

TEST(Profiler, WithoutOneNothingIsKept) {
  ASSERT_EQ(current_profiler(), nullptr);
  const ProfileLayer layer(&layer);
  const ProfileOp op("op");
  const ProfileInside inside;
  profile_work(1, 2);
  EXPECT_EQ(current_profiler(), nullptr);
}

TEST(Profiler, AnOperatorMadeOfOthersCountsAsItself) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  int first = 0, second = 0;
  for (int i = 0; i < 3; ++i) {
    const ProfileLayer outer(&first);
    {
      const ProfileOp op("outer");
      profile_work(1, 10);
      const ProfileOp part("part");
      profile_work(2, 20);
    }
    {
      const ProfileLayer inner(&second);
      const ProfileOp op("outer");
      profile_work(100, 1000);
    }
    const ProfileOp op("outer", true);
  }
  profile_work(7, 7);  // of no operator
  ASSERT_EQ(profiler.entries().size(), 3u);
  EXPECT_EQ(find(profiler, &first, "part"), nullptr);
  const ProfileEntry* made = find(profiler, &first, "outer");
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->calls, 3);
  EXPECT_EQ(made->flops, 9);
  EXPECT_EQ(made->bytes, 90);
  const ProfileEntry* inner = find(profiler, &second, "outer");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->bytes, 3000);
  ASSERT_NE(find(profiler, &first, "outer", true), nullptr);
  EXPECT_EQ(find(profiler, &first, "outer", true)->flops, 0);
}

TEST(Profiler, WhatRunsInsideIsReportedForItself) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  {
    const ProfileOp op("recompute");
    {
      const ProfileInside inside;
      const ProfileOp again("again");
      profile_work(5, 50);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    profile_work(1, 1);
  }
  const ProfileEntry* again = find(profiler, nullptr, "again");
  const ProfileEntry* outer = find(profiler, nullptr, "recompute");
  ASSERT_TRUE(again && outer);
  EXPECT_EQ(again->flops, 5);
  EXPECT_EQ(outer->flops, 1);
  EXPECT_GE(again->seconds, 0.02);
  EXPECT_LT(outer->seconds, again->seconds);
}

TEST(Profiler, BelongsToItsThread) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  std::thread([] {
    EXPECT_EQ(current_profiler(), nullptr);
    const ProfileOp op("elsewhere");
  }).join();
  EXPECT_TRUE(profiler.entries().empty());
  {
    Profiler second;
    const ProfilerScope inner(second);
    const ProfileOp op("op");
    EXPECT_EQ(second.entries().size(), 1u);
  }
  EXPECT_EQ(current_profiler(), &profiler);
  const ProfileOp op("op");
  EXPECT_EQ(profiler.entries().size(), 1u);
  profiler.reset();
}

}  // namespace
}  // namespace weft
