// Sums of gradients are completed in the order in which they were whole in the last step, which
// rank 0 decides.
#include "autograd/engine.h"
#include "core/random.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <mutex>

namespace weft::test {
namespace {

// Three branches, walked in an order of their own: the last one's gradient is made first.
struct Branches : nn::Module {
  nn::Linear a{16, 16, false}, b{16, 16, false}, c{16, 16, false};
  std::string order = "abc";
  Branches() {
    add("a", a);
    add("b", b);
    add("c", c);
  }
  Tensor forward(const Tensor& x) override {
    Tensor outputs[3];
    for (const char name : order)
      outputs[name - 'a'] = square((name == 'a' ? a : name == 'b' ? b : c)(x));
    // The sum's own gradients come at once, so that the branches' order decides.
    return outputs[0] + outputs[1] + outputs[2];
  }
};

struct Course {
  std::vector<std::vector<std::string>> steps;  // units in the order of their reductions
  uint64_t digest = 0;
};

// On each of two ranks. `orders`: of the branches, by step, on rank 0 and on rank 1.
std::vector<Course> courses(const std::string& strategy, const std::vector<std::string>& rank_0,
                            const std::vector<std::string>& rank_1) {
  std::vector<Course> result(2);
  std::mutex mutex;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    manual_seed(5);
    Branches model;
    dist::ParallelOptions options{.strategy = strategy, .bucket_bytes = 1};
    if (strategy == "fsdp") options.wrap.names = {"a", "b", "c"};
    dist::Parallel parallel(model, comm, options);
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
    Course course;
    for (size_t step = 0; step < rank_0.size(); ++step) {
      const auto already = static_cast<int64_t>(comm.recorder().events().size());
      model.order = comm.rank() == 0 ? rank_0[step] : rank_1[step];
      backward(sum(model(normal({4, 16}, step + 1, f32))));
      optimizer.step();
      auto& units = course.steps.emplace_back();
      const auto events = comm.recorder().events();
      for (size_t i = static_cast<size_t>(already); i < events.size(); ++i) {
        const bool reduces = events[i].collective == dist::Collective::all_reduce ||
                             events[i].collective == dist::Collective::reduce_scatter;
        if (reduces && events[i].unit != "losses") units.push_back(events[i].unit);
      }
    }
    parallel.with_full_parameters([&] { course.digest = digest_of(model); });
    const std::lock_guard lock(mutex);
    result[static_cast<size_t>(comm.rank())] = std::move(course);
  });
  return result;
}

class ReadyOrder : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategies, ReadyOrder, testing::ValuesIn(kStrategies),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(ReadyOrder, IsThatOfTheLastStep) {
  const auto plain = courses(GetParam(), {"abc", "abc"}, {"abc", "abc"}).front();
  // As the model lists its parts, the last first; so it stays where backward does so, too.
  EXPECT_EQ(plain.steps[1], plain.steps[0]);
  ASSERT_EQ(plain.steps[0].size(), 3U);
  const auto turned = courses(GetParam(), {"cab", "cab"}, {"cab", "cab"}).front();
  EXPECT_EQ(turned.steps[0], plain.steps[0]);
  const auto& listed = plain.steps[0];  // c, b, a
  EXPECT_EQ(turned.steps[1], (std::vector{listed[1], listed[2], listed[0]}));
}

// Ranks whose backward goes another way follow rank 0; the bits are the same in any order. (Where
// forward gathers parameters, ranks go the same way anyhow.)
TEST(ReadyOrderOfRank0, HoldsOnEveryRank) {
  const std::vector<std::string> some = {"bca", "cab", "abc", "bac"};
  const std::vector<std::string> others = {"abc", "bca", "acb", "cba"};
  for (const char* strategy : {"ddp", "zero1", "zero2"}) {
    SCOPED_TRACE(strategy);
    const auto mixed = courses(strategy, some, others);
    const auto alike = courses(strategy, some, some);
    EXPECT_EQ(mixed[0].steps, mixed[1].steps);
    EXPECT_EQ(mixed[0].steps, alike[0].steps);
    EXPECT_EQ(mixed[0].digest, alike[0].digest);
    EXPECT_EQ(mixed[0].digest, mixed[1].digest);
  }
}

}  // namespace
}  // namespace weft::test
