// Memory that comes and goes at one address.
#include "core/reserved.h"

#include "core/tensor.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ReservedMemory, IsThereBetweenTakeAndDrop) {
  Ledger ledger;
  const LedgerScope scope(ledger);
  for (const int64_t bytes : {int64_t{64}, int64_t{5} << 20}) {
    ReservedMemory memory(bytes);
    EXPECT_EQ(ledger.current_total(), 0);
    const Tensor view = view_of(memory.storage(), 0, {bytes / 4}, Strides{1}, f32);
    for (int round = 0; round < 3; ++round) {
      memory.take(Category::communication);
      memory.take(Category::communication);  // it is there already
      EXPECT_EQ(ledger.current(Category::communication), bytes);
      EXPECT_EQ(view.data<float>()[bytes / 4 - 1], 0) << "round " << round;
      view.data<float>()[bytes / 4 - 1] = 7;
      EXPECT_EQ(view.data<float>()[bytes / 4 - 1], 7);
      memory.drop();
      memory.drop();
      EXPECT_FALSE(memory.present());
      EXPECT_EQ(ledger.current_total(), 0);
    }
  }
}

TEST(ReservedMemory, StaysWithinTheLimit) {
  Ledger ledger(1000);
  const LedgerScope scope(ledger);
  ReservedMemory memory(1001);
  EXPECT_THROW(memory.take(Category::parameters), OutOfMemory);
  EXPECT_FALSE(memory.present());
  EXPECT_EQ(ledger.current_total(), 0);
  ledger.set_limit(0);
  memory.take(Category::parameters);
  EXPECT_TRUE(memory.present());
}

TEST(ReservedMemory, AddressesOutliveTheOwnerInViews) {
  Ref<Storage> storage;
  {
    const ReservedMemory memory(4096);
    storage = memory.storage();
  }
  EXPECT_EQ(storage->bytes(), 4096);
  EXPECT_THROW(ReservedMemory(-1), Error);
}

TEST(ReservedMemoryDeathTest, FaultsWhenItIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch = [] {
    ReservedMemory memory(4096);
    memory.take(Category::other);
    volatile std::byte* at = memory.storage()->data();
    *at = std::byte{1};
    memory.drop();
    *at = std::byte{2};
  };
  EXPECT_DEATH(touch(), "");
}

TEST(Tensor, WithoutItsMemorySaysSo) {
  const Tensor x = empty({2, 3});
  x.body()->data = nullptr;
  EXPECT_EQ(x.shape(), Shape({2, 3}));
  try {
    x.to_vector<float>();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rest on other ranks"), std::string::npos);
  }
  EXPECT_THROW(alias(x, {6}, {1}), Error);
}

}  // namespace
}  // namespace weft
