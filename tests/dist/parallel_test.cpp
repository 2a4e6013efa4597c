// Every strategy at every number of ranks: the same bits.
#include "ops/ops.h"
#include "tests/support/parallel_models.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft::test {
namespace {

class SameBitsOf : public ::testing::TestWithParam<const char*> {};

TEST_P(SameBitsOf, AtEveryStrategyAndNumberOfRanks) {
  const TestModel model = test_model(GetParam());
  const Trained alone = train(model, {.strategy = "single"});
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      EXPECT_EQ(train(model, {.strategy = strategy, .ranks = ranks}), alone)
          << strategy << " on " << ranks << " ranks";
    }
  }
}

// The choices that change who communicates when, and nothing else.
TEST(SameBits, WhateverTheUnitsAndTheirOrder) {
  for (const char* name : {"mlp", "gpt", "awkward"}) {
    const TestModel model = test_model(name);
    const Trained alone = train(model, {.strategy = "single", .steps = 6});
    const auto check = [&](const char* strategy, int ranks, auto change) {
      EXPECT_EQ(train(model, {.strategy = strategy, .ranks = ranks, .steps = 6, .change = change}),
                alone)
          << name << " " << strategy << " on " << ranks;
    };
    for (const int ranks : {2, 3, 4}) {
      for (const char* strategy : {"zero2", "zero3", "fsdp"})
        check(strategy, ranks, [](auto& options) { options.reduce_every_shard = false; });
      check("ddp", ranks, [](auto& options) { options.bucket_bytes = 1; });
      check("zero1", ranks, [](auto& options) { options.bucket_bytes = 1 << 20; });
      check("fsdp", ranks, [](auto& options) { options.reshard_after_forward = false; });
      check("fsdp", ranks, [](auto& options) { options.prefetch = false; });
      check("fsdp", ranks, [](auto& options) { options.max_gathered = 5; });
      check("fsdp", ranks, [](auto& options) { options.wrap = {.min_parameters = 1 << 20}; });
      check("zero3", ranks, [](auto& options) { options.wrap = {.min_parameters = 1}; });
    }
    // Two shards in two replicas, four in two, one in four.
    for (const char* strategy : {"zero1", "zero2", "zero3", "fsdp"}) {
      check(strategy, 4, [](auto& options) { options.shard_ranks = 2; });
      check(strategy, 8, [](auto& options) { options.shard_ranks = 4; });
      check(strategy, 4, [](auto& options) { options.shard_ranks = 1; });
      check(strategy, 6, [](auto& options) { options.shard_ranks = 3; });
    }
  }
}

TEST(SameBits, OfStrategiesAtEqualRanksWithoutANumberOfShards) {
  const TestModel model = test_model("cnn");
  for (const int ranks : {2, 4}) {
    const Trained ddp =
        train(model, {.strategy = "ddp", .ranks = ranks, .logical_shards = 0, .steps = 6});
    for (const char* strategy : kStrategies) {
      EXPECT_EQ(
          train(model, {.strategy = strategy, .ranks = ranks, .logical_shards = 0, .steps = 6}),
          ddp)
          << strategy;
      const auto accumulate = [](dist::ParallelOptions& options) { options.accumulate = 2; };
      EXPECT_EQ(train(model, {.strategy = strategy,
                              .ranks = ranks,
                              .logical_shards = 0,
                              .steps = 6,
                              .change = accumulate}),
                train(model, {.strategy = "single", .logical_shards = 2 * ranks, .steps = 6}))
          << strategy;
    }
  }
}

// A unit that is called once by itself and again within another's forward, whose own values its
// backward needs after that.
struct Sharing : nn::Module {
  struct Outer : nn::Module {
    nn::Linear own{12, 12};
    nn::Linear& shared;
    explicit Outer(nn::Linear& lent) : shared(lent) { add("own", own); }
    Tensor forward(const Tensor& x) override { return shared(relu(own(x))); }
  };
  nn::Linear inner{12, 12};
  Outer outer{inner};
  Sharing() {
    add("inner", inner);
    add("outer", outer);
  }
  Tensor forward(const Tensor& x) override { return outer(relu(inner(x))); }
};

TEST(SameBits, WhereAUnitIsCalledAgainWithinAnother) {
  TestModel model;
  model.make = [] { return std::make_unique<Sharing>(); };
  model.rows = [](int64_t step, int64_t first, int64_t rows) {
    const Tensor all = normal({kTestBatch, 12}, static_cast<uint64_t>(step) + 7, f32);
    std::vector<int64_t> classes;
    for (int64_t i = first; i < first + rows; ++i)
      classes.push_back(i % 12);
    return Rows{narrow(all, 0, first, rows), ints(classes, {rows})};
  };
  const Trained alone = train(model, {.strategy = "single", .steps = 3});
  for (const bool prefetch : {true, false}) {
    const auto change = [&](dist::ParallelOptions& options) {
      options.wrap = {.names = {"inner", "outer"}};
      options.prefetch = prefetch;
    };
    EXPECT_EQ(train(model, {.strategy = "fsdp", .ranks = 2, .steps = 3, .change = change}), alone);
  }
}

TEST(SameBits, WithMomentum) {
  const TestModel model = test_model("mlp");
  const Trained alone = train(model, {.strategy = "single", .clip = 0, .optimizer = "sgd"});
  for (const char* strategy : kStrategies) {
    EXPECT_EQ(train(model, {.strategy = strategy, .ranks = 4, .clip = 0, .optimizer = "sgd"}),
              alone);
  }
}

// Their norms are of whole parameters, of which a rank has parts.
TEST(SameBits, WithStepsScaledByNorms) {
  for (const char* name : {"mlp", "awkward"}) {
    const TestModel model = test_model(name);
    for (const char* optimizer : {"lars", "lamb", "lamb_groups"}) {
      const Trained alone = train(model, {.strategy = "single", .clip = 0, .optimizer = optimizer});
      EXPECT_LT(alone.losses.back(), alone.losses.front()) << name << " " << optimizer;
      for (const char* strategy : kStrategies) {
        for (const int ranks : {1, 2, 3, 4, 8}) {
          EXPECT_EQ(
              train(model,
                    {.strategy = strategy, .ranks = ranks, .clip = 0, .optimizer = optimizer}),
              alone)
              << name << " " << optimizer << " " << strategy << " on " << ranks << " ranks";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameBitsOf, ::testing::Values("mlp", "cnn", "gpt", "awkward"));

}  // namespace
}  // namespace weft::test
