// Moving averages of weights, and loss scaling with the steps it skips: the same bits on every
// strategy and number of ranks, and across checkpoints.
#include "autograd/engine.h"
#include "dist/checkpoint.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>

#include <optional>

namespace weft::test {
namespace {

constexpr int64_t kRowsAStep = 24;
constexpr int64_t kStepsARun = 12;

struct RankedStrategy {
  const char* strategy;
  int ranks;
};
constexpr RankedStrategy kPlaces[] = {{"single", 1}, {"ddp", 2},   {"zero1", 3}, {"zero2", 2},
                                      {"zero2", 4},  {"zero3", 3}, {"fsdp", 2},  {"fsdp", 4}};

struct AveragedRun {
  std::vector<double> losses;
  uint64_t weights = 0;
  uint64_t averages = 0;
  double scale = 0;
  int64_t skipped = 0;
  bool operator==(const AveragedRun&) const = default;
};

// What one rank has.
class Rank {
 public:
  Rank(const std::string& model, dist::Communicator& comm, const std::string& strategy,
       std::optional<DType> dtype)
      : test_(test_model(model)),
        dtype_(dtype),
        model_(test_.make()),
        parallel_(*model_, comm, options(strategy, dtype)),
        optimizer_(parallel_.parameters(), {.lr = 0.05, .momentum = 0.9}),
        ema_(parallel_.parameters(), {.decay = 0.9}, model_->named_buffers()) {}

  void train(int64_t first, int64_t end) {
    for (int64_t step = first; step < end; ++step) {
      parallel_.begin_step(static_cast<uint64_t>(step));
      for (const dist::Shard& shard : parallel_.shards()) {
        parallel_.begin_shard(shard);
        const Rows rows = test_.rows(step, shard.first_row(kRowsAStep), shard.rows(kRowsAStep));
        const Tensor loss = cross_entropy((*model_)(dtype_ ? to(rows.input, *dtype_) : rows.input),
                                          rows.target, {.reduction = Reduction::sum});
        parallel_.backward(loss * (1.0 / kRowsAStep), dtype_ ? scaler_.scale() : 1);
      }
      outcome_.losses.push_back(parallel_.loss());
      if (dtype_ && !scaler_.unscale(parallel_.parameters())) {
        const uint64_t before = digest();
        parallel_.skip_step();
        EXPECT_NE(digest(), before);  // statistics are those from before the step
        continue;
      }
      optimizer_.step();
      ema_.update();
    }
  }

  AveragedRun outcome() {
    outcome_.weights = digest();
    ema_.swap();
    outcome_.averages = digest();
    ema_.swap();
    EXPECT_EQ(digest(), outcome_.weights);
    outcome_.scale = scaler_.scale();
    outcome_.skipped = scaler_.skipped();
    return outcome_;
  }

  dist::Parallel& parallel() { return parallel_; }
  optim::Ema& ema() { return ema_; }
  nn::Module& model() { return *model_; }

  std::unique_ptr<dist::Checkpointer> checkpointer(const std::string& directory) {
    auto checkpoints = std::make_unique<dist::Checkpointer>(
        *model_, parallel_, dist::CheckpointOptions{.directory = directory, .block_bytes = 256});
    checkpoints->add(optimizer_);
    checkpoints->add(ema_);
    checkpoints->add(scaler_.state_dict());
    return checkpoints;
  }

 private:
  static dist::ParallelOptions options(const std::string& strategy, std::optional<DType> dtype) {
    dist::ParallelOptions options;
    options.strategy = strategy;
    options.logical_shards = 4;
    options.mean_over_shards = false;
    options.parameter_dtype = dtype;
    if (strategy == "fsdp") options.wrap.min_parameters = 300;
    return options;
  }
  uint64_t digest() {
    uint64_t digest = 0;
    parallel_.with_full_parameters([&] { digest = digest_of(*model_); });
    return digest;
  }

  TestModel test_;
  std::optional<DType> dtype_;
  std::unique_ptr<nn::Module> model_;
  dist::Parallel parallel_;
  optim::Sgd optimizer_;
  // So large that the first steps overflow in f16, and soon as large again.
  optim::LossScaler scaler_{{.scale = 524288, .interval = 3}};
  optim::Ema ema_;
  AveragedRun outcome_;
};

AveragedRun on_ranks(const RankedStrategy& place, const std::string& model,
                     std::optional<DType> dtype, const std::function<void(Rank&)>& body) {
  std::vector<AveragedRun> outcomes(static_cast<size_t>(place.ranks));
  dist::run_thread_ranks(place.ranks, [&](dist::Communicator& comm) {
    Rank rank(model, comm, place.strategy, dtype);
    body(rank);
    outcomes[static_cast<size_t>(comm.rank())] = rank.outcome();
  });
  for (const AveragedRun& outcome : outcomes)
    EXPECT_EQ(outcome, outcomes.front());
  return outcomes.front();
}

AveragedRun train_all(const RankedStrategy& place, const std::string& model,
                      std::optional<DType> dtype) {
  return on_ranks(place, model, dtype, [](Rank& rank) { rank.train(0, kStepsARun); });
}

TEST(Averages, AreTheSameBitsOnEveryStrategy) {
  for (const char* model : {"cnn", "mlp", "awkward"}) {
    const AveragedRun alone = train_all({"single", 1}, model, {});
    EXPECT_NE(alone.averages, alone.weights);
    for (const RankedStrategy& place : kPlaces)
      EXPECT_EQ(train_all(place, model, {}), alone) << model << " " << place.strategy;
  }
}

TEST(LossScaling, SkipsTheSameStepsOnEveryStrategy) {
  const AveragedRun alone = train_all({"single", 1}, "cnn", f16);
  EXPECT_GE(alone.skipped, 3);  // at first, and when the scale has risen again
  EXPECT_LT(alone.skipped, kStepsARun - 4);
  EXPECT_LT(alone.scale, 524288);
  const AveragedRun in_f32 = train_all({"single", 1}, "cnn", {});
  EXPECT_NEAR(alone.losses.front(), in_f32.losses.front(), 0.01);
  for (const RankedStrategy& place : kPlaces)
    EXPECT_EQ(train_all(place, "cnn", f16), alone) << place.strategy << " on " << place.ranks;
}

// Saved by one strategy, loaded by another, averages, scale and all.
TEST(Averages, GoOnFromACheckpointOfAnotherStrategy) {
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional<DType>(f16)}) {
    const AveragedRun whole = train_all({"single", 1}, "cnn", dtype);
    for (const RankedStrategy& from :
         {RankedStrategy{"ddp", 2}, RankedStrategy{"zero1", 3}, RankedStrategy{"fsdp", 2}}) {
      const TemporaryDirectory directory;
      on_ranks(from, "cnn", dtype, [&](Rank& rank) {
        rank.train(0, kStepsARun / 2);
        const auto checkpoints = rank.checkpointer(directory.path());
        checkpoints->save({.step = kStepsARun / 2});
        checkpoints->wait();
      });
      for (const RankedStrategy& to :
           {RankedStrategy{"single", 1}, RankedStrategy{"zero2", 4}, RankedStrategy{"fsdp", 3}}) {
        const AveragedRun rest = on_ranks(to, "cnn", dtype, [&](Rank& rank) {
          const auto checkpoints = rank.checkpointer(directory.path());
          ASSERT_TRUE(checkpoints->resume());
          EXPECT_GT(rank.ema().updates(), 0);
          rank.train(kStepsARun / 2, kStepsARun);
        });
        EXPECT_EQ(rest.weights, whole.weights) << from.strategy << " → " << to.strategy;
        EXPECT_EQ(rest.averages, whole.averages) << from.strategy << " → " << to.strategy;
        EXPECT_EQ(rest.scale, whole.scale);
        EXPECT_EQ(rest.skipped, whole.skipped);
      }
    }
  }
}

TEST(Averages, ACheckpointWithoutThemIsRefusedAndSoIsOneWithThem) {
  const TemporaryDirectory directory;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Rank rank("cnn", comm, "fsdp", {});
    rank.train(0, 1);
    dist::Checkpointer without(rank.model(), rank.parallel(), {.directory = directory / "without"});
    without.save({.step = 1});
    without.wait();
    const auto with = rank.checkpointer(directory / "with");
    with->save({.step = 1});
    with->wait();
    try {
      with->load(without.saved()->path);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("missing: tensors.ema_updates"));
    }
    try {
      without.load(with->saved()->path);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("unexpected: tensors.ema_updates"));
    }
    EXPECT_THROW(with->add(rank.ema()), Error);
  });
}

}  // namespace
}  // namespace weft::test
