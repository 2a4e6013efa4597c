#include "core/random.h"

#include "core/error.h"
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

namespace weft {
namespace {

using Words = std::array<uint32_t, 4>;

// The vectors of the Random123 distribution (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheKeyAndTheBlockCounts) {
  std::set<Words> seen;
  for (const RandomKey& key :
       {RandomKey{0, 0, 0, 0}, RandomKey{1, 0, 0, 0}, RandomKey{uint64_t{1} << 32, 0, 0, 0},
        RandomKey{0, 1, 0, 0}, RandomKey{0, uint64_t{1} << 32, 0, 0}, RandomKey{0, 0, 1, 0},
        RandomKey{0, 0, 0, 1}}) {
    for (const uint64_t block : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
      EXPECT_TRUE(seen.insert(philox(key, block)).second);
    }
  }
}

// Fills are computed in vector chunks; single draws are not. Both must agree wherever a fill begins
// and ends.
TEST(Fill, UniformIsTheSingleDraw) {
  const RandomKey key{42, 7, 3, 1};
  for (const uint64_t first :
       {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{129}, uint64_t{1} << 34}) {
    for (const int64_t count : {0, 1, 5, 64, 127, 300}) {
      std::vector<float> values(static_cast<size_t>(count) + 1, -1.0f);
      fill_uniform(key, first, values.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)],
                  random_uniform(key, first + static_cast<uint64_t>(i)));
      }
      EXPECT_EQ(values.back(), -1.0f) << "a fill must not write past its end";
    }
  }
}

TEST(Fill, ChunksCrossThe32BitBorderOfTheBlockCounter) {
  const RandomKey key{42, 7, 3, 1};
  const uint64_t border = uint64_t{4} << 32;  // draw 0 of block 2^32
  std::vector<float> values(200);
  fill_uniform(key, border - 100, values.data(), 200);
  for (uint64_t i = 0; i < 200; ++i)
    ASSERT_EQ(values[i], random_uniform(key, border - 100 + i)) << i;
}

template <class T>
using FillFunction = void (*)(const RandomKey&, uint64_t, T*, int64_t);

template <class T>
void expect_pieces_equal_whole(FillFunction<T> fill) {
  const RandomKey key{9, 1, 0, 5};
  constexpr int64_t count = 50'000;  // more than one thread's share
  std::vector<T> whole(count);
  fill(key, 11, whole.data(), count);
  for (const int64_t piece :
       {int64_t{1}, int64_t{3}, int64_t{100}, int64_t{16'384}, int64_t{49'999}}) {
    const int64_t stop = piece < 50 ? 500 : count;
    std::vector<T> pieces(count);
    for (int64_t at = 0; at < stop; at += piece) {
      fill(key, 11 + static_cast<uint64_t>(at), pieces.data() + at, std::min(piece, stop - at));
    }
    ASSERT_TRUE(std::equal(pieces.begin(), pieces.begin() + stop, whole.begin())) << piece;
  }
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::vector<T> again(count);
    fill(key, 11, again.data(), count);
    EXPECT_EQ(again, whole) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(Fill, PiecesGiveTheBitsOfTheWhole) {
  expect_pieces_equal_whole<float>(fill_uniform);
  expect_pieces_equal_whole<float>(fill_normal);
  expect_pieces_equal_whole<double>(fill_uniform);
  expect_pieces_equal_whole<double>(fill_normal);
}

// Box–Muller written out with the standard library's functions.
TEST(Fill, NormalIsBoxMuller) {
  const RandomKey key{5, 0, 0, 2};
  constexpr int64_t count = 20'000;
  std::vector<float> values(count);
  fill_normal(key, 0, values.data(), count);
  for (uint64_t i = 0; i < count; i += 2) {
    const double u =
        std::ldexp(static_cast<double>(random_bits(key, i) >> 1), -31) + std::ldexp(1.0, -33);
    const double angle =
        6.283185307179586 * std::ldexp(static_cast<double>(random_bits(key, i + 1)), -32);
    const double radius = std::sqrt(-2 * std::log(u));
    // f32 keeps u to 2^-25, which near u = 1 is much of a small radius.
    const double tolerance = 2e-6 + std::ldexp(1.0, -24) / std::max(radius, 1e-4);
    ASSERT_NEAR(values[i], radius * std::cos(angle), tolerance) << i;
    ASSERT_NEAR(values[i + 1], radius * std::sin(angle), tolerance) << i;
  }
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double skew = 0;
  double kurtosis = 0;
};

template <class T>
Moments moments(const std::vector<T>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const T x : values)
    m.mean += static_cast<double>(x) / n;
  for (const T x : values) {
    const double d = static_cast<double>(x) - m.mean;
    m.variance += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  m.skew /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  return m;
}

// Largest distance between the sample's distribution and `cdf` times √n (Kolmogorov): above 1.95
// with p = 0.001.
template <class T, class F>
double kolmogorov(std::vector<T> values, F cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = cdf(static_cast<double>(values[i]));
    worst = std::max(
        {worst, expected - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - expected});
  }
  return worst * std::sqrt(n);
}

template <class T>
void expect_distributions() {
  constexpr int64_t count = 1 << 18;
  std::vector<T> values(count);
  fill_uniform({123, 4, 5, 6}, 0, values.data(), count);
  for (const T x : values)
    ASSERT_TRUE(x >= 0 && x < 1);
  EXPECT_LT(kolmogorov(values, [](double x) { return x; }), 1.95);
  fill_normal({123, 4, 5, 7}, 0, values.data(), count);
  EXPECT_LT(kolmogorov(values, [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }),
            1.95);
  // Standard errors: 1/√n, √(2/n), √(6/n), √(24/n); four of each.
  const Moments m = moments(values);
  const double error = 4 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(m.mean, 0, error);
  EXPECT_NEAR(m.variance, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(m.skew, 0, error * std::sqrt(6.0));
  EXPECT_NEAR(m.kurtosis, 3, error * std::sqrt(24.0));
  // Neighbours, among them the two of a pair, do not know of each other.
  for (const size_t lag : {1u, 2u, 4u, 64u, 128u}) {
    double sum = 0;
    for (size_t i = lag; i < values.size(); ++i)
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i - lag]);
    EXPECT_NEAR(sum / static_cast<double>(count), 0, error) << lag;
  }
}

TEST(Distribution, F32) {
  expect_distributions<float>();
}
TEST(Distribution, F64) {
  expect_distributions<double>();
}

TEST(Distribution, StreamsAreIndependent) {
  constexpr int64_t count = 1 << 16;
  std::vector<float> a(count);
  std::vector<float> b(count);
  fill_normal({1, 0, 0, 0}, 0, a.data(), count);
  for (const RandomKey& key : {RandomKey{2, 0, 0, 0}, RandomKey{1, 1, 0, 0}, RandomKey{1, 0, 1, 0},
                               RandomKey{1, 0, 0, 1}}) {
    fill_normal(key, 0, b.data(), count);
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i)
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    EXPECT_LT(std::fabs(sum) / count, 4 / std::sqrt(static_cast<double>(count)));
  }
}

TEST(Distribution, WordsHaveEveryBitEvenly) {
  constexpr uint64_t count = 1 << 14;
  for (int bit = 0; bit < 32; ++bit) {
    int64_t ones = 0;
    for (uint64_t i = 0; i < count; ++i)
      ones += random_bits({77, 0, 0, 0}, i) >> bit & 1;
    EXPECT_NEAR(static_cast<double>(ones), count / 2.0, 4 * std::sqrt(count) / 2) << bit;
  }
}

TEST(RandomBelow, IsUniformWithinTheBound) {
  constexpr uint64_t bound = 7;
  constexpr int draws = 70'000;
  std::array<int, bound> counts{};
  for (uint64_t i = 0; i < draws; ++i) {
    const uint64_t value = random_below({3, 0, 0, 0}, i, bound);
    ASSERT_LT(value, bound);
    ++counts[value];
  }
  double chi_squared = 0;
  for (const int count : counts)
    chi_squared += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  EXPECT_LT(chi_squared, 22.46) << "six degrees of freedom, p = 0.001";
  EXPECT_EQ(random_below({3, 0, 0, 0}, 0, 1), 0u);
  uint64_t largest = 0;
  for (uint64_t i = 0; i < 100; ++i)
    largest = std::max(largest, random_below({3, 0, 0, 0}, i, ~uint64_t{0}));
  EXPECT_GT(largest, uint64_t{1} << 62) << "the whole 64 bits are reached";
  EXPECT_THROW(random_below({3, 0, 0, 0}, 0, 0), Error);
}

TEST(RandomState, EveryUseTakesTheNextStream) {
  manual_seed(5);
  EXPECT_EQ(random_state().take().stream, 0u);
  EXPECT_EQ(random_state().take().stream, 1u);
  begin_random_step(9, 2);
  const RandomKey key = random_state().take();
  EXPECT_EQ(key.seed, 5u);
  EXPECT_EQ(key.step, 9u);
  EXPECT_EQ(key.shard, 2u);
  EXPECT_EQ(key.stream, 0u);
  manual_seed(6);
  EXPECT_EQ(random_state().step, 0u);
  std::thread([] { EXPECT_EQ(random_state().seed, 0u) << "a thread has its own state"; }).join();
}

}  // namespace
}  // namespace weft
