#include "data/permutation.h"

#include "core/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft::data {
namespace {

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const int64_t size : {0, 1, 2, 3, 4, 5, 7, 16, 17, 255, 256, 257, 1000, 60000}) {
    const Permutation order(size, 1, 0);
    std::vector<bool> seen(static_cast<size_t>(size), false);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = order(i);
      ASSERT_TRUE(at >= 0 && at < size) << size;
      ASSERT_FALSE(seen[static_cast<size_t>(at)]) << size << " " << i;
      seen[static_cast<size_t>(at)] = true;
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const int64_t size = 1000;
  const Permutation a(size, 1, 0);
  const Permutation again(size, 1, 0);
  const Permutation other_epoch(size, 1, 1);
  const Permutation other_seed(size, 2, 0);
  int same_epoch = 0;
  int same_seed = 0;
  int fixed = 0;
  for (int64_t i = 0; i < size; ++i) {
    EXPECT_EQ(a(i), again(i));
    same_epoch += a(i) == other_epoch(i);
    same_seed += a(i) == other_seed(i);
    fixed += a(i) == i;
  }
  // Two random orders agree in one place on average (Poisson); ten is beyond chance.
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
}

TEST(Permutation, SpreadsEveryStartOverTheWholeRange) {
  // The first position, over many epochs, is uniform: chi-squared over ten bins, 9 degrees of
  // freedom.
  constexpr int64_t kSize = 60000;
  constexpr int kEpochs = 5000;
  std::vector<int> bins(10, 0);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    ++bins[static_cast<size_t>(Permutation(kSize, 3, static_cast<uint64_t>(epoch))(0) * 10 /
                               kSize)];
  }
  double chi2 = 0;
  for (const int count : bins)
    chi2 += std::pow(count - kEpochs / 10.0, 2) / (kEpochs / 10.0);
  EXPECT_LT(chi2, 27.9);  // p = 0.001
}

TEST(Permutation, NeighboursAreIndependent) {
  constexpr int64_t kSize = 4096;
  const Permutation order(kSize, 5, 0);
  double correlation = 0;
  for (int64_t i = 0; i + 1 < kSize; ++i) {
    const double a = static_cast<double>(order(i)) / kSize - 0.5;
    const double b = static_cast<double>(order(i + 1)) / kSize - 0.5;
    correlation += a * b * 12 / kSize;
  }
  EXPECT_LT(std::abs(correlation), 4 / std::sqrt(static_cast<double>(kSize)));
}

TEST(Permutation, RefusesWhatIsOutside) {
  const Permutation order(10, 1, 0);
  EXPECT_THROW(order(-1), Error);
  EXPECT_THROW(order(10), Error);
  EXPECT_THROW(Permutation(-1, 1, 0), Error);
}

}  // namespace
}  // namespace weft::data
