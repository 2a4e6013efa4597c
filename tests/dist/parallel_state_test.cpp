// Memory and traffic against the formulas, the loop without shards, and misuse.
#include "autograd/engine.h"
#include "core/ledger.h"
#include "core/random.h"
#include "dist/detail/point_tensor.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <mutex>

namespace weft::test {
namespace {

struct Reading {
  int64_t parameters, gradients, optimizer;
  std::array<dist::Recorder::Total, dist::kCollectives> totals;
};

// Resting bytes after a step, and what a further step sends.
Reading measure(const std::string& strategy, int ranks, int64_t micro_batches = 1,
                std::function<void(dist::ParallelOptions&)> change = {}) {
  Reading reading{};
  std::mutex mutex;
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    Wide model;
    dist::ParallelOptions options;
    options.strategy = strategy;
    options.accumulate = micro_batches;
    if (strategy == "fsdp") options.wrap.names = {"fc1", "fc2"};
    if (change) change(options);
    dist::Parallel parallel(model, comm, options);
    optim::AdamW optimizer(parallel.parameters());
    const auto step = [&](uint64_t number) {
      parallel.begin_step(number);
      for (const dist::Shard& shard : parallel.shards()) {
        parallel.begin_shard(shard);
        parallel.backward(sum(square(model(normal({4, 64}, 3, f32)))));
      }
      optimizer.step();
    };
    step(0);
    comm.barrier();
    comm.recorder().reset_totals();
    step(1);
    const std::lock_guard lock(mutex);
    if (comm.rank() != 0) return;
    const Ledger& ledger = current_ledger();
    reading = {ledger.current(Category::parameters), ledger.current(Category::gradients),
               ledger.current(Category::optimizer), comm.recorder().totals()};
  });
  return reading;
}

int64_t sent(const Reading& reading, dist::Collective collective) {
  return reading.totals[static_cast<size_t>(collective)].sent_bytes;
}

TEST(ParallelMemory, IsWhatTheFormulaSays) {
  for (const int ranks : {1, 2, 4}) {
    const int64_t whole = 4 * kWidePsi;
    const int64_t share = whole / ranks;
    const auto expect = [&](const char* strategy, int64_t p, int64_t g, int64_t o) {
      const Reading reading = measure(strategy, ranks);
      EXPECT_EQ(reading.parameters, p) << strategy << " on " << ranks;
      EXPECT_EQ(reading.gradients, g) << strategy << " on " << ranks;
      EXPECT_EQ(reading.optimizer, o) << strategy << " on " << ranks;
    };
    expect("ddp", whole, whole, 2 * whole);
    expect("zero1", whole, whole, 2 * share);
    expect("zero2", whole, share, 2 * share);
    expect("zero3", share, share, 2 * share);
    expect("fsdp", share, share, 2 * share);
  }
}

TEST(ParallelTraffic, IsWhatTheFormulaSays) {
  using enum dist::Collective;
  for (const int ranks : {2, 4}) {
    // The f64 facts of a step (losses, uses of two parameters, order of one buffer) travel by
    // all-reduce, too.
    const auto facts = [&](int64_t micro) {
      return 2 * (ranks - 1) * (ranks * micro + 3) * 8 / ranks;
    };
    const int64_t once = 4 * kWidePsi * (ranks - 1) / ranks;  // Ψ (W-1)/W
    for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{4}}) {
      const Reading ddp = measure("ddp", ranks, k);
      EXPECT_EQ(sent(ddp, all_reduce), 2 * once + facts(k));
      const Reading zero1 = measure("zero1", ranks, k);
      EXPECT_EQ(sent(zero1, reduce_scatter), once);
      EXPECT_EQ(sent(zero1, all_gather), once);
      const Reading zero2 = measure("zero2", ranks, k);
      EXPECT_EQ(sent(zero2, reduce_scatter), k * once);
      EXPECT_EQ(sent(zero2, all_gather), once);
      for (const char* strategy : {"zero3", "fsdp"}) {
        const Reading reading = measure(strategy, ranks, k);
        EXPECT_EQ(sent(reading, reduce_scatter), k * once) << strategy;
        EXPECT_EQ(sent(reading, all_gather), 2 * k * once) << strategy;
        const Reading kept = measure(strategy, ranks, k, [](dist::ParallelOptions& options) {
          options.reshard_after_forward = false;
          options.reduce_every_shard = false;
        });
        EXPECT_EQ(sent(kept, reduce_scatter), once) << strategy;
        EXPECT_EQ(sent(kept, all_gather), k * once) << strategy;
      }
    }
  }
}

// The loop of the README: no shards named, gradients are the mean over ranks.
TEST(Parallel, PlainLoopTrainsOnTheMeanOverRanks) {
  const Tensor inputs = normal({8, 64}, 5, f32);
  manual_seed(3);
  Wide reference;
  optim::Sgd alone(reference, {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    alone.zero_grad();
    backward(mean(square(reference(inputs))));
    alone.step();
  }
  for (const char* strategy : kStrategies) {
    dist::run_thread_ranks(4, [&](dist::Communicator& comm) {
      Wide model;
      dist::Parallel parallel(model, comm, {.strategy = strategy});
      parallel.with_full_parameters(
          [&] {
            manual_seed(3);
            const Wide fresh;
            model.load_state_dict(fresh.state_dict());
          },
          true);
      optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
      for (int step = 0; step < 3; ++step) {
        backward(mean(square(model(narrow(inputs, 0, comm.rank() * 2, 2)))));
        optimizer.step();
      }
      parallel.with_full_parameters([&] {
        expect_near(model.fc1.weight, reference.fc1.weight, 1e-5);
        expect_near(model.fc2.weight, reference.fc2.weight, 1e-5);
      });
      // Outside of a unit's forward and backward its values are not there, and that has a name.
      if (parallel.plan().parameters == dist::Rest::sharded) {
        EXPECT_EQ(model.fc1.weight.shape(), Shape({128, 64}));
        EXPECT_THROW(sum(model.fc1.weight), Error);
      }
    });
  }
}

std::string error_of_ranks(int ranks, const std::function<void(dist::Communicator&)>& body) {
  try {
    dist::run_thread_ranks(ranks, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Parallel, NamesAModelThatIsBuiltDifferentlyOnOneRank) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const std::string error = error_of_ranks(3, [&](dist::Communicator& comm) {
      nn::Linear model(8, comm.rank() == 2 ? 9 : 8);
      const dist::Parallel parallel(model, comm, {.strategy = strategy});
    });
    EXPECT_NE(error.find("rank 2"), std::string::npos) << error;
    EXPECT_NE(error.find("[9, 8]"), std::string::npos) << error;
    EXPECT_NE(error.find("weight"), std::string::npos) << error;
  }
}

// Values travel as they lie in memory.
TEST(Parallel, NamesAParameterOrBufferThatLiesOtherwiseOnOneRank) {
  struct Strided : nn::Module {
    Tensor weight = zeros({2, 3});
    Tensor mask = zeros({2, 3});
    Strided() {
      add_parameter("weight", weight);
      add_buffer("mask", mask);
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  for (const bool buffer : {false, true}) {
    const std::string error = error_of_ranks(2, [&](dist::Communicator& comm) {
      Strided model;
      Tensor& changed = buffer ? model.mask : model.weight;
      if (comm.rank() == 1) dist::detail::point_tensor(changed, transpose(zeros({3, 2}), 0, 1));
      const dist::Parallel parallel(model, comm);
    });
    EXPECT_NE(error.find(buffer ? "buffer mask f32[2, 3] strides [1, 2] on rank 1"
                                : "parameter weight f32[2, 3] strides [1, 2] on rank 1"),
              std::string::npos)
        << error;
  }
}

TEST(Parallel, NamesAnOptionThatDiffersOnOneRank) {
  const auto differs = [](const std::string& text, const auto& change) {
    const std::string error = error_of_ranks(2, [&](dist::Communicator& comm) {
      Wide model;
      dist::ParallelOptions options{.strategy = "fsdp", .wrap = {.every_module = true}};
      if (comm.rank() == 1) change(options);
      const dist::Parallel parallel(model, comm, options);
    });
    EXPECT_NE(error.find(text + " on rank 1"), std::string::npos) << error;
  };
  using Options = dist::ParallelOptions;
  differs("mean_over_shards false", [](Options& o) { o.mean_over_shards = false; });
  differs("reduce_every_shard false", [](Options& o) { o.reduce_every_shard = false; });
  differs("bucket_bytes 1", [](Options& o) { o.bucket_bytes = 1; });
  differs("shard_ranks 1", [](Options& o) { o.shard_ranks = 1; });
  differs("prefetch false", [](Options& o) { o.prefetch = false; });
  differs("max_gathered 3", [](Options& o) { o.max_gathered = 3; });
  differs("reshard_after_forward false", [](Options& o) { o.reshard_after_forward = false; });
}

// They are no numbers, but state as any other: rank 0's at first, put back with a step that comes
// to nothing, true after a step where any rank has made them so.
TEST(Parallel, BuffersOfBoolArePartOfTheState) {
  struct Seen : nn::Module {
    nn::Linear fc{64, 2};
    Tensor seen = zeros({3}, {.dtype = boolean});
    Seen() {
      add("fc", fc);
      add_buffer("seen", seen);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  dist::run_thread_ranks(2, [](dist::Communicator& comm) {
    const auto values = [](const Seen& model) { return to(model.seen, i64).to_vector<int64_t>(); };
    const auto mark = [](const Seen& model, int at) { model.seen.data<bool>()[at] = true; };
    Seen model;
    mark(model, comm.rank());
    dist::Parallel parallel(model, comm);
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1});
    EXPECT_EQ(values(model), (std::vector<int64_t>{1, 0, 0}));
    const auto backward = [&](uint64_t step) {
      parallel.begin_step(step);
      parallel.begin_shard(parallel.shards()[0]);
      if (comm.rank() == 1) mark(model, 2);
      parallel.backward(sum(square(model(ones({2, 64})))));
      parallel.finish_gradients();
    };
    backward(0);
    parallel.skip_step();
    EXPECT_EQ(values(model), (std::vector<int64_t>{1, 0, 0}));
    backward(1);
    optimizer.step();
    EXPECT_EQ(values(model), (std::vector<int64_t>{1, 0, 1}));
  });
}

TEST(Parallel, RefusesWhatCannotBe) {
  const auto refused = [](int ranks, const dist::ParallelOptions& options) {
    return error_of_ranks(ranks, [&](dist::Communicator& comm) {
      Wide model;
      const dist::Parallel parallel(model, comm, options);
    });
  };
  EXPECT_NE(refused(1, {.strategy = "zero4"}).find("zero4"), std::string::npos);
  EXPECT_NE(refused(2, {.strategy = "single"}).find("one rank"), std::string::npos);
  EXPECT_NE(refused(4, {.logical_shards = 2}).find("logical shards"), std::string::npos);
  EXPECT_NE(refused(1, {.accumulate = 0}).find("accumulate"), std::string::npos);
  EXPECT_NE(refused(2, {.logical_shards = 4, .accumulate = 2}).find("accumulate"),
            std::string::npos);
  EXPECT_NE(refused(4, {.strategy = "fsdp", .shard_ranks = 3}).find("divides"), std::string::npos);
  EXPECT_NE(refused(2, {.shard_ranks = 2}).find("shard_ranks"), std::string::npos);
  EXPECT_NE(refused(2, {.strategy = "fsdp", .wrap = {.types = {"Nope"}}}).find("Nope"),
            std::string::npos);
  EXPECT_NE(refused(2, {.strategy = "fsdp", .wrap = {.names = {"fc9"}}}).find("fc9"),
            std::string::npos);
}

TEST(Parallel, NamesMisuseOfAStep) {
  const auto misuse = [](const std::function<void(Wide&, dist::Parallel&)>& body,
                         int64_t accumulate = 1) {
    return error_of_ranks(2, [&](dist::Communicator& comm) {
      Wide model;
      dist::Parallel parallel(model, comm, {.accumulate = accumulate});
      body(model, parallel);
    });
  };
  const auto loss = [](Wide& model) { return sum(square(model(ones({2, 64})))); };
  // Twice backward in one step.
  EXPECT_NE(misuse([&](Wide& model, dist::Parallel&) {
              backward(loss(model));
              backward(loss(model));
            }).find("one backward"),
            std::string::npos);
  // Several shards a step, none named.
  EXPECT_NE(
      misuse([&](Wide& model, dist::Parallel&) { backward(loss(model)); }, 2).find("begin_step()"),
      std::string::npos);
  // Half a step.
  EXPECT_NE(misuse(
                [&](Wide& model, dist::Parallel& parallel) {
                  parallel.begin_step(0);
                  parallel.begin_shard(parallel.shards()[0]);
                  parallel.backward(loss(model));
                  parallel.finish_gradients();
                },
                2)
                .find("all 2 shards"),
            std::string::npos);
  // An optimizer that steps something else.
  EXPECT_NE(misuse([&](Wide& model, dist::Parallel& parallel) {
              for (uint64_t step = 0; step < 3; ++step) {
                parallel.begin_step(step);
                parallel.begin_shard(parallel.shards()[0]);
                parallel.backward(loss(model));
                parallel.finish_gradients();
              }
            }).find("parallel.parameters()"),
            std::string::npos);
}

// Steps may be skipped, such as after gradients that are not finite; also the first ones.
TEST(Parallel, FirstStepsMayBeSkipped) {
  dist::run_thread_ranks(2, [](dist::Communicator& comm) {
    Wide model;
    dist::Parallel parallel(model, comm, {.strategy = "zero2"});
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1});
    for (uint64_t step = 0; step < 4; ++step) {
      parallel.begin_step(step);
      parallel.begin_shard(parallel.shards()[0]);
      parallel.backward(sum(square(model(ones({2, 64})))));
      parallel.finish_gradients();
      if (step == 3) optimizer.step();
    }
  });
}

}  // namespace
}  // namespace weft::test
