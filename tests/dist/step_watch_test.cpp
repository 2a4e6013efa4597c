// What is said about ranks' times and memory, from samples that the test makes up.
#include "dist/detail/step_watch.h"

#include <gmock/gmock.h>

namespace weft::test {
namespace {

using dist::Phase;
using dist::detail::RankSample;
using dist::detail::StepWatch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Ranks whose every step takes what `cost` says.
class Ranks {
 public:
  explicit Ranks(int ranks) : samples_(static_cast<size_t>(ranks)) {
    for (RankSample& sample : samples_)
      sample.step = 0;
  }
  RankSample& operator[](int rank) { return samples_[static_cast<size_t>(rank)]; }
  double& cost(int rank, Phase phase) {
    return costs_[static_cast<size_t>(rank)][static_cast<size_t>(phase)];
  }
  // Runs so many steps and lets the watch look after each.
  std::vector<std::string> run(StepWatch& watch, int steps, int64_t grow = 0) {
    std::vector<std::string> lines;
    for (int i = 0; i < steps; ++i) {
      for (size_t r = 0; r < samples_.size(); ++r) {
        ++samples_[r].step;
        for (size_t p = 0; p < dist::kPhases; ++p)
          samples_[r].seconds[p] += costs_[r][p];
      }
      samples_[0].resident += grow;
      for (std::string& line : watch.add(samples_))
        lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  std::vector<RankSample> samples_;
  std::array<std::array<double, dist::kPhases>, 8> costs_{};
};

TEST(StepWatch, NamesTheSlowestRankOnce) {
  StepWatch watch(4);
  Ranks ranks(4);
  for (int r = 0; r < 4; ++r) {
    ranks.cost(r, Phase::forward) = 0.010;
    ranks.cost(r, Phase::backward) = 0.020;
    ranks.cost(r, Phase::communication) = 0.011;
  }
  EXPECT_THAT(ranks.run(watch, 100), IsEmpty());
  ranks.cost(2, Phase::forward) = 0.021;  // the others wait for it
  ranks.cost(2, Phase::communication) = 0;
  EXPECT_THAT(ranks.run(watch, 100),
              ElementsAre(HasSubstr("rank 2 is the slowest: 41 ms a step by itself, the others 30 "
                                    "ms; it loses 11 ms in forward")));
  // Over for a while, then again: told again.
  ranks.cost(2, Phase::forward) = 0.010;
  EXPECT_THAT(ranks.run(watch, 100), IsEmpty());
  ranks.cost(2, Phase::backward) = 0.030;
  EXPECT_THAT(ranks.run(watch, 100), ElementsAre(HasSubstr("in backward")));
}

TEST(StepWatch, DoesNotMindLessThanAFifthNorASpell) {
  StepWatch watch(2);
  Ranks ranks(2);
  for (int r = 0; r < 2; ++r)
    ranks.cost(r, Phase::forward) = 0.010;
  ranks.cost(1, Phase::forward) = 0.0118;
  EXPECT_THAT(ranks.run(watch, 200), IsEmpty());
  for (int spell = 0; spell < 5; ++spell) {
    ranks.cost(1, Phase::forward) = 0.030;
    EXPECT_THAT(ranks.run(watch, 10), IsEmpty());
    ranks.cost(1, Phase::forward) = 0.010;
    EXPECT_THAT(ranks.run(watch, 30), IsEmpty());
  }
}

TEST(StepWatch, TellsWhoWaitsForData) {
  StepWatch watch(2);
  Ranks ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks.cost(r, Phase::forward) = 0.010;
    ranks.cost(r, Phase::data) = 0.001;
  }
  EXPECT_THAT(ranks.run(watch, 100), IsEmpty());
  for (int r = 0; r < 2; ++r)
    ranks.cost(r, Phase::data) = 0.005;
  EXPECT_THAT(ranks.run(watch, 100),
              ElementsAre(HasSubstr("rank 0 waits for data: 5 ms of 15 ms a step"),
                          HasSubstr("rank 1 waits for data")));
}

TEST(StepWatch, WarnsOfGrowthWithItsSlope) {
  StepWatch watch(2);
  Ranks ranks(2);
  for (int r = 0; r < 2; ++r)
    ranks[r].resident = int64_t{200} << 20;
  EXPECT_THAT(ranks.run(watch, 300), IsEmpty());
  const auto lines = ranks.run(watch, 300, int64_t{1} << 20);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("rank 0 grows by "));
  EXPECT_LE(lines.size(), 2U);  // again only when it has doubled
  // A jump is no growth.
  StepWatch another(1);
  Ranks jumping(1);
  jumping[0].resident = int64_t{200} << 20;
  EXPECT_THAT(jumping.run(another, 100), IsEmpty());
  jumping[0].resident += int64_t{300} << 20;
  EXPECT_THAT(jumping.run(another, 300), IsEmpty());
}

}  // namespace
}  // namespace weft::test
