#include "data/loader.h"

#include "core/parallel.h"
#include "data/images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

namespace weft::data {
namespace {

// Images whose first pixel tells their index, and whose label is index % 10.
Images numbered(int64_t count, ImageOptions options = {}) {
  const Tensor images = empty({count, 2, 3}, {.dtype = u8});
  const Tensor labels = empty({count}, {.dtype = u8});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t p = 0; p < 6; ++p)
      images.data<uint8_t>()[i * 6 + p] = static_cast<uint8_t>(i + p);
    labels.data<uint8_t>()[i] = static_cast<uint8_t>(i % 10);
  }
  return {images, labels, options};
}

std::vector<int64_t> indices_of(const Batch& batch) {
  std::vector<int64_t> indices;
  for (int64_t row = 0; row < batch.count; ++row) {
    indices.push_back(static_cast<int64_t>(batch.inputs.data<float>()[row * 6] * 255.0f + 0.5f));
  }
  return indices;
}

std::vector<int64_t> epoch_of(Loader& loader) {
  std::vector<int64_t> all;
  while (const auto batch = loader.next()) {
    for (const int64_t index : indices_of(*batch))
      all.push_back(index);
  }
  return all;
}

TEST(Loader, GivesEverySampleOncePerEpochInAnotherOrder) {
  const Images images = numbered(103);
  Loader loader(images, {.batch = 10, .seed = 7});
  const auto first = epoch_of(loader);
  const auto second = epoch_of(loader);
  EXPECT_EQ(first.size(), 103u);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 103u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 103u);
  EXPECT_NE(first, second);
}

TEST(Loader, OrderDependsNeitherOnBatchNorOnPrefetch) {
  const Images images = numbered(50);
  Loader a(images, {.batch = 10, .seed = 3});
  Loader b(images, {.batch = 7, .seed = 3, .prefetch = 0});
  EXPECT_EQ(epoch_of(a), epoch_of(b));
}

TEST(Loader, MasksShrinksOrDropsTheTail) {
  const Images images = numbered(25);
  Loader mask(images, {.batch = 10, .tail = Tail::mask});
  Loader shrink(images, {.batch = 10, .tail = Tail::shrink});
  Loader drop(images, {.batch = 10, .tail = Tail::drop});
  EXPECT_EQ(mask.batches(), 3);
  EXPECT_EQ(drop.batches(), 2);
  EXPECT_EQ(epoch_of(drop).size(), 20u);
  Batch last;
  while (auto batch = mask.next())
    last = std::move(*batch);
  EXPECT_EQ(last.count, 5);
  EXPECT_EQ(last.inputs.size(0), 10);
  EXPECT_EQ(last.targets.data<int64_t>()[4] >= 0, true);
  for (int64_t row = 5; row < 10; ++row) {
    EXPECT_EQ(last.targets.data<int64_t>()[row], kNoTarget);
    EXPECT_EQ(last.inputs.data<float>()[row * 6], 0.0f);
  }
  while (auto batch = shrink.next())
    last = std::move(*batch);
  EXPECT_EQ(last.inputs.size(0), 5);
  EXPECT_THROW(Loader(images, {.batch = 26, .tail = Tail::drop}), Error);
}

// What ranks do: each gathers some rows of every batch, and together they have all of it.
TEST(Loader, GathersOnlyTheRowsItIsAskedFor) {
  const Images images = numbered(23);
  for (const int prefetch : {0, 2}) {
    Loader whole(images, {.batch = 8, .seed = 3, .prefetch = prefetch});
    Loader a(images, {.batch = 8, .seed = 3, .rows = {{0, 2}, {6, 2}}, .prefetch = prefetch});
    Loader b(images, {.batch = 8, .seed = 3, .rows = {{2, 4}}, .prefetch = prefetch});
    while (const auto batch = whole.next()) {
      const auto all = indices_of(*batch);
      const auto part_a = a.next();
      const auto part_b = b.next();
      ASSERT_TRUE(part_a && part_b);
      EXPECT_EQ(part_a->inputs.size(0), 4);
      EXPECT_EQ(part_a->whole_count, batch->count);
      EXPECT_EQ(part_b->whole_targets, batch->count);
      std::vector<int64_t> together = indices_of(*part_a);
      const auto others = indices_of(*part_b);
      together.insert(together.begin() + 2, others.begin(), others.end());
      EXPECT_EQ(together, all);  // the last batch has 7: a's last row is empty
      EXPECT_EQ(part_a->count + part_b->count, batch->count);
    }
    EXPECT_FALSE(a.next());
  }
  EXPECT_THROW(Loader(images, {.batch = 8, .tail = Tail::shrink, .rows = {{0, 2}}}), Error);
  EXPECT_THROW(Loader(images, {.batch = 8, .rows = {{4, 2}, {0, 2}}}), Error);
  EXPECT_THROW(Loader(images, {.batch = 8, .rows = {{4, 5}}}), Error);
}

TEST(Loader, GoesOnFromASavedStateAtAnotherBatchSize) {
  const Images images = numbered(40);
  Loader loader(images, {.batch = 8, .seed = 5});
  epoch_of(loader);
  std::vector<int64_t> seen;
  for (int i = 0; i < 2; ++i) {
    for (const int64_t index : indices_of(*loader.next()))
      seen.push_back(index);
  }
  const LoaderState state = loader.state();
  EXPECT_EQ(state.epoch, 1);
  EXPECT_EQ(state.consumed, 16);
  Loader resumed(images, {.batch = 6, .seed = 5});
  resumed.seek(state);
  const auto rest = epoch_of(resumed);
  EXPECT_EQ(rest, epoch_of(loader));
  seen.insert(seen.end(), rest.begin(), rest.end());
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 40u);
  EXPECT_THROW(resumed.seek({0, 41}), Error);
}

class Failing final : public Dataset {
 public:
  int64_t size() const override { return 100; }
  Shape sample_shape() const override { return {1}; }
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey&) const override {
    for (const int64_t index : indices)
      WEFT_CHECK(index != 42, "read", "sample 42 of shelf.bin is damaged");
    return {empty({rows, 1}), empty({rows}, {.dtype = i64}), static_cast<int64_t>(indices.size())};
  }
};

TEST(Loader, ThrowsWhatWentWrongInTheBackground) {
  const Failing failing;
  Loader loader(failing, {.batch = 10, .shuffle = false});
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(loader.next());
  EXPECT_THROW(loader.next(), Error);
  EXPECT_THROW(loader.next(), Error);  // still there, not a hang
  loader.seek({0, 50});
  EXPECT_TRUE(loader.next());
}

TEST(Loader, ChargesTheRankThatAskedAndStaysFlat) {
  const Images images = numbered(200);
  Ledger ledger;
  const LedgerScope scope(ledger);
  {
    Loader loader(images, {.batch = 20});
    int64_t peak = 0;
    for (int epoch = 0; epoch < 10; ++epoch) {
      while (const auto batch = loader.next())
        peak = std::max(peak, ledger.current(Category::data));
    }
    EXPECT_GE(peak, 20 * (6 * 4 + 8));
    // At most: two waiting, one being filled, one in the caller's hands.
    EXPECT_LE(ledger.peak(Category::data), 4 * 20 * (6 * 4 + 8));
  }
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST(Images, NormalisesAndAugmentsByEpochAndSampleAlone) {
  const Images plain = numbered(4, {.mean = 0.5, .stddev = 0.25});
  const std::vector<int64_t> one = {3};
  EXPECT_NEAR(plain.gather(one, 1, {}).inputs.data<float>()[0], (3 / 255.0 - 0.5) / 0.25, 1e-6);

  const Images moving = numbered(64, {.flip = true, .shift = 1});
  std::vector<int64_t> all(64);
  for (int64_t i = 0; i < 64; ++i)
    all[static_cast<size_t>(i)] = i;
  const auto pixels = [&](uint64_t epoch, int threads) {
    set_num_threads(threads);
    const auto values = moving.gather(all, 64, {1, epoch}).inputs.to_vector<float>();
    set_num_threads(1);
    return values;
  };
  EXPECT_EQ(pixels(0, 1), pixels(0, 2));
  EXPECT_NE(pixels(0, 1), pixels(1, 1));
  const auto batch = moving.gather(one, 1, {1, 0}).inputs.to_vector<float>();
  const auto whole = pixels(0, 1);
  EXPECT_TRUE(std::equal(batch.begin(), batch.end(), whole.begin() + 3 * 6));
}

TEST(Images, FlipMirrorsHalfOfThem) {
  const Images flipping = numbered(200, {.flip = true});
  std::vector<int64_t> all(200);
  for (int64_t i = 0; i < 200; ++i)
    all[static_cast<size_t>(i)] = i;
  const Tensor inputs = flipping.gather(all, 200, {1, 0}).inputs;
  int mirrored = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const float* row = inputs.data<float>() + i * 6;
    mirrored += row[0] > row[1];
    EXPECT_EQ(std::abs(row[0] - row[1]) > 0, true);
  }
  EXPECT_GT(mirrored, 60);
  EXPECT_LT(mirrored, 140);
}

TEST(Images, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Images(empty({2, 3, 3}, {.dtype = u8}), empty({3}, {.dtype = u8})), Error);
  EXPECT_THROW(Images(empty({2, 3, 3}), empty({2}, {.dtype = u8})), Error);
  const Images images = numbered(4);
  const std::vector<int64_t> outside = {4};
  EXPECT_THROW(images.gather(outside, 1, {}), Error);
  const std::vector<int64_t> many = {1, 2};
  EXPECT_THROW(images.gather(many, 1, {}), Error);
  EXPECT_THROW(read_mnist("no/such/folder", true), Error);
}

TEST(Images, IdentityIsThatOfTheLabels) {
  const Tensor pixels = zeros({3, 2, 2}, {.dtype = u8});
  const auto identity = [&](std::vector<int64_t> labels) {
    return Images(pixels, from_values(labels), {}).identity();
  };
  EXPECT_EQ(identity({0, 1, 2}), identity({0, 1, 2}));
  EXPECT_NE(identity({0, 1, 2}), identity({0, 2, 1}));
  EXPECT_NE(Synthetic(3, {2}, 3, 1).identity(), Synthetic(3, {2}, 3, 2).identity());
}

TEST(Synthetic, DependsOnSeedAndIndexAlone) {
  const Synthetic made(10, {2, 2}, 3, 1);
  const std::vector<int64_t> some = {7, 2};
  const std::vector<int64_t> seven = {7};
  const Batch both = made.gather(some, 3, {});
  const Batch one = made.gather(seven, 1, {5, 6});
  EXPECT_EQ(both.count, 2);
  EXPECT_EQ(both.inputs.shape(), Shape({3, 2, 2}));
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(both.inputs.data<float>()[i], one.inputs.data<float>()[i]);
  EXPECT_EQ(both.targets.data<int64_t>()[0], one.targets.data<int64_t>()[0]);
  EXPECT_EQ(both.targets.data<int64_t>()[2], kNoTarget);
}

}  // namespace
}  // namespace weft::data
