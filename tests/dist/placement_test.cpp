// The pieces that strategies are made of: plans, shards of a step, the mesh, redistribution, units.
#include "dist/mesh.h"
#include "dist/plan.h"
#include "dist/redistribute.h"
#include "dist/shards.h"
#include "dist/thread_ranks.h"
#include "dist/wrap.h"
#include "nn/nn.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <set>

namespace weft::dist {
namespace {

TEST(Plan, AreTheRowsOfTheTable) {
  const auto rests = [](const char* name) {
    const Plan& plan = plan_named(name);
    std::string text;
    for (const Rest rest : {plan.parameters, plan.gradients, plan.optimizer})
      text += rest == Rest::sharded ? 'S' : 'R';
    return text;
  };
  EXPECT_EQ(rests("single"), "RRR");
  EXPECT_EQ(rests("ddp"), "RRR");
  EXPECT_EQ(rests("zero1"), "RRS");
  EXPECT_EQ(rests("zero2"), "RSS");
  EXPECT_EQ(rests("zero3"), "SSS");
  EXPECT_EQ(rests("fsdp"), "SSS");
  EXPECT_NE(test::error_of([] { plan_named("zero"); }).find("zero1, zero2"), std::string::npos);
}

TEST(Shards, EveryShardRunsOnceOnAnyNumberOfRanks) {
  for (const ShardOrder order : {ShardOrder::contiguous, ShardOrder::strided}) {
    for (const int64_t shards : {1, 2, 5, 8, 16}) {
      for (int ranks = 1; ranks <= shards; ++ranks) {
        std::set<int64_t> seen;
        std::set<size_t> lengths;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto mine = shards_of(rank, ranks, shards, order, true);
          lengths.insert(mine.size());
          EXPECT_FALSE(mine.front().ghost);
          for (const Shard& shard : mine) {
            EXPECT_EQ(shard.of, shards);
            // A ghost goes along with a shard that this rank has rows of.
            if (shard.ghost) {
              EXPECT_EQ(shard.index, mine.front().index);
            } else {
              EXPECT_TRUE(seen.insert(shard.index).second);
            }
          }
        }
        EXPECT_EQ(static_cast<int64_t>(seen.size()), shards);
        EXPECT_EQ(lengths.size(), 1U);
      }
    }
  }
  EXPECT_THROW(shards_of(0, 3, 2, ShardOrder::strided), Error);
  const Shard third{2, 8};
  EXPECT_EQ(third.rows(40), 5);
  EXPECT_EQ(third.first_row(40), 10);
}

TEST(Mesh, AxesHoldTheRanksTheySay) {
  run_thread_ranks(6, [](Communicator& world) {
    const Mesh mesh(world, 3);
    EXPECT_EQ(mesh.shards(), 3);
    EXPECT_EQ(mesh.replicas(), 2);
    const auto sum_of_ranks = [&](Communicator& axis) {
      const Tensor sum = from_values(std::vector<float>{static_cast<float>(world.rank())});
      axis.all_reduce(sum);
      return sum.item();
    };
    EXPECT_EQ(sum_of_ranks(mesh.shard()), world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    EXPECT_EQ(sum_of_ranks(mesh.gather()), world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
    EXPECT_EQ(sum_of_ranks(mesh.replicate()), 2 * (world.rank() % 3) + 3);
    EXPECT_EQ(mesh.shard().rank(), mesh.shard_index());
    EXPECT_THROW(Mesh(world, 4), Error);
  });
}

TEST(Redistribute, KnowsFourMoves) {
  using enum Placement;
  run_thread_ranks(4, [](Communicator& comm) {
    const auto mine = static_cast<float>(comm.rank());
    const Tensor shard = from_values(std::vector<float>{mine, mine + 10});
    const Tensor whole = redistribute(shard, sharded, replicated, comm);
    EXPECT_EQ(whole.to_vector<float>(), (std::vector<float>{0, 10, 1, 11, 2, 12, 3, 13}));
    const Tensor slice = redistribute(whole, replicated, sharded, comm);
    EXPECT_EQ(slice.to_vector<float>(), shard.to_vector<float>());
    EXPECT_TRUE(slice.storage() == whole.storage());
    const Tensor part = from_values(std::vector<float>{1, mine, 2, mine});
    EXPECT_EQ(redistribute(part, partial, replicated, comm).to_vector<float>(),
              (std::vector<float>{4, 6, 8, 6}));
    const float own = comm.rank() % 2 == 0 ? static_cast<float>(4 + 2 * comm.rank()) : 6.0F;
    EXPECT_EQ(redistribute(part, partial, sharded, comm).to_vector<float>(),
              std::vector<float>{own});
    EXPECT_THROW(redistribute(part, sharded, partial, comm), Error);
    EXPECT_THROW(redistribute(part, replicated, replicated, comm), Error);
    EXPECT_THROW(redistribute(from_values(std::vector<float>{1}), partial, sharded, comm), Error);
  });
}

struct Block : nn::Module {
  nn::Linear fc1{4, 4}, fc2{4, 4};
  Block() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(fc1(x)); }
};

struct Tied : nn::Module {
  nn::Linear first{4, 4, false};
  Block a, b;
  nn::Linear last{4, 4, false};
  Tied() {
    last.weight = first.weight;
    b.fc2.weight = b.fc1.weight;  // tied within a block: the block can keep it
    add("first", first);
    add("a", a);
    add("b", b);
    add("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(b(a(first(x)))); }
};

std::string units_of(nn::Module& model, const WrapPolicy& policy) {
  std::string text;
  for (const auto& unit : wrap_modules(model, policy)) {
    text += unit.name + ":";
    for (const auto& [name, tensor] : unit.parameters)
      text += " " + name;
    text += "\n";
  }
  return text;
}

TEST(Wrap, PutsEveryParameterWhereAllItsUsesCanSeeIt) {
  Tied model;
  EXPECT_EQ(units_of(model, {.types = {"Block"}}),
            "model: first.weight\n"
            "a: a.fc1.weight a.fc1.bias a.fc2.weight a.fc2.bias\n"
            "b: b.fc1.weight b.fc1.bias b.fc2.bias\n");
  EXPECT_EQ(units_of(model, {.names = {"a.fc1"}}),
            "model: first.weight a.fc2.weight a.fc2.bias b.fc1.weight b.fc1.bias b.fc2.bias\n"
            "a.fc1: a.fc1.weight a.fc1.bias\n");
  // The weight that b's two layers share needs a unit around both: here the whole model.
  EXPECT_EQ(units_of(model, {.every_module = true}),
            "model: first.weight b.fc1.weight\n"
            "a.fc1: a.fc1.weight a.fc1.bias\n"
            "a.fc2: a.fc2.weight a.fc2.bias\n"
            "b.fc1: b.fc1.bias\n"
            "b.fc2: b.fc2.bias\n");
  EXPECT_EQ(units_of(model, {.min_parameters = 24}),
            "model: first.weight\n"
            "a: a.fc1.weight a.fc1.bias a.fc2.weight a.fc2.bias\n"
            "b: b.fc1.weight b.fc1.bias b.fc2.bias\n");
  EXPECT_THROW(wrap_modules(model, {.types = {"Blok"}}), Error);
  EXPECT_THROW(wrap_modules(model, {.names = {"c"}}), Error);
}

TEST(Wrap, BucketsFillFromTheLastParameter) {
  Block model;  // weights of 64 bytes, biases of 16
  const auto buckets = wrap_buckets(model, 80);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].parameters.front().name, "fc2.weight");
  EXPECT_EQ(buckets[1].parameters.back().name, "fc1.bias");
  EXPECT_EQ(wrap_buckets(model, 1).size(), 4U);
  EXPECT_THROW(wrap_buckets(model, 0), Error);
}

}  // namespace
}  // namespace weft::dist
