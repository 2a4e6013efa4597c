// Checkpoints: whatever strategy and number of ranks saved one, every other loads it and goes on to
// the same bits.
#include "dist/checkpoint.h"

#include "autograd/engine.h"
#include "core/ledger.h"
#include "core/random.h"
#include "data/images.h"
#include "data/loader.h"
#include "dist/checkpoint_reader.h"
#include "ops/ops.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_rank.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

namespace weft::test {
namespace {

struct Place {
  std::string strategy;
  int ranks;
};
std::string to_string(const Place& place) {
  return place.strategy + " on " + std::to_string(place.ranks);
}

std::vector<Place> all_places() {
  std::vector<Place> places;
  for (const char* strategy : kStrategies) {
    for (const int ranks : {1, 2, 3, 4})
      places.push_back({strategy, ranks});
  }
  return places;
}

constexpr int64_t kStop = 2;  // the step a run is saved at, and the last one
constexpr int64_t kEnd = 4;

// What rank 0 has seen, after a check that all ranks have seen the same.
struct Seen {
  std::vector<double> losses;
  uint64_t digest = 0;
  std::string state;  // the checkpoint's digest
  bool operator==(const Seen&) const = default;
};

Seen on_ranks(int ranks, const std::function<Seen(dist::Communicator&)>& body) {
  std::vector<Seen> seen(static_cast<size_t>(ranks));
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    seen[static_cast<size_t>(comm.rank())] = body(comm);
  });
  for (const Seen& each : seen)
    EXPECT_EQ(each, seen.front());
  return seen.front();
}

RankOptions options_of(const Place& place, const std::string& optimizer) {
  return {.strategy = place.strategy, .optimizer = optimizer};
}

Seen uninterrupted(const TestModel& model, const RankOptions& options, int ranks) {
  return on_ranks(ranks, [&](dist::Communicator& comm) {
    TrainingRank rank(model, comm, options);
    Seen seen;
    rank.train(0, kStop);
    seen.losses = rank.train(kStop, kEnd);
    seen.digest = rank.digest();
    return seen;
  });
}

Seen save_at_stop(const TestModel& model, const RankOptions& options, int ranks,
                  const std::string& directory) {
  return on_ranks(ranks, [&](dist::Communicator& comm) {
    TrainingRank rank(model, comm, options);
    rank.train(0, kStop);
    const auto checkpoints = rank.checkpointer({.directory = directory, .block_bytes = 256});
    checkpoints->save({.step = kStop});
    checkpoints->wait();
    return Seen{{}, rank.digest(), checkpoints->saved()->digest};
  });
}

Seen go_on(const TestModel& model, const RankOptions& options, int ranks,
           const std::string& directory) {
  return on_ranks(ranks, [&](dist::Communicator& comm) {
    TrainingRank rank(model, comm, options);
    const auto checkpoints = rank.checkpointer({.directory = directory, .block_bytes = 256});
    const auto resumed = checkpoints->resume();
    if (!resumed) throw Error("nothing to resume");
    Seen seen;
    seen.losses = rank.train(resumed->progress.step, kEnd);
    seen.digest = rank.digest();
    return seen;
  });
}

// Saved at each of `from`, loaded at each of `to`.
void expect_all_pairs(const std::string& model_name, const std::string& optimizer,
                      const std::vector<Place>& from, const std::vector<Place>& to) {
  const TestModel model = test_model(model_name);
  const Seen whole = uninterrupted(model, options_of({"ddp", 1}, optimizer), 1);
  std::set<std::string> digests;
  for (const Place& saved : from) {
    const TemporaryDirectory directory;
    const Seen at_stop =
        save_at_stop(model, options_of(saved, optimizer), saved.ranks, directory.path());
    digests.insert(at_stop.state);
    for (const Place& loaded : to) {
      const Seen seen = go_on(model, options_of(loaded, optimizer), loaded.ranks, directory.path());
      EXPECT_EQ(seen.losses, whole.losses) << to_string(saved) << " → " << to_string(loaded);
      EXPECT_EQ(seen.digest, whole.digest) << to_string(saved) << " → " << to_string(loaded);
    }
  }
  EXPECT_EQ(digests.size(), 1u) << "one state has one digest";
}

TEST(Checkpoint, EveryStrategyAndRankCountLoadsEveryOther) {
  expect_all_pairs("awkward", "adamw", all_places(), all_places());
}

TEST(Checkpoint, BuffersTiesAndOptimizersCome) {
  const std::vector<Place> from = {{"ddp", 3}, {"zero2", 4}, {"fsdp", 3}};
  const std::vector<Place> to = {{"ddp", 1}, {"zero1", 3}, {"zero3", 4}, {"fsdp", 2}};
  expect_all_pairs("cnn", "sgd", from, to);
  expect_all_pairs("gpt", "adamw", from, to);
  expect_all_pairs("mlp", "lamb", from, to);
}

TEST(Checkpoint, MastersOf16BitParametersCome) {
  const TestModel mlp = test_model("mlp");
  TestModel model = mlp;
  model.rows = [mlp](int64_t step, int64_t first, int64_t rows) {
    Rows given = mlp.rows(step, first, rows);
    return Rows{weft::to(given.input, bf16), given.target};
  };
  RankOptions ddp{.strategy = "ddp", .dtype = bf16};
  RankOptions fsdp{.strategy = "fsdp", .dtype = bf16};
  const Seen whole = uninterrupted(model, ddp, 1);
  const TemporaryDirectory directory;
  save_at_stop(model, fsdp, 3, directory.path());
  for (const auto& [options, ranks] : {std::pair(ddp, 2), std::pair(fsdp, 4)}) {
    const Seen seen = go_on(model, options, ranks, directory.path());
    EXPECT_EQ(seen.losses, whole.losses);
    EXPECT_EQ(seen.digest, whole.digest);
  }
}

TEST(Checkpoint, MastersOfMixedPrecisionCome) {
  const TestModel mlp = test_model("mlp");
  TestModel model = mlp;
  model.rows = [mlp](int64_t step, int64_t first, int64_t rows) {
    Rows given = mlp.rows(step, first, rows);
    return Rows{weft::to(given.input, bf16), given.target};
  };
  const auto mixed = [](const char* strategy) {
    return RankOptions{.strategy = strategy,
                       .change = [](dist::ParallelOptions& o) { o.parameter_dtype = bf16; }};
  };
  const Seen whole = uninterrupted(model, mixed("ddp"), 1);
  std::set<std::string> digests;
  for (const char* saved : {"ddp", "zero1", "fsdp"}) {
    const TemporaryDirectory directory;
    digests.insert(save_at_stop(model, mixed(saved), 3, directory.path()).state);
    for (const char* loaded : {"ddp", "zero2", "zero3"}) {
      const Seen seen = go_on(model, mixed(loaded), 2, directory.path());
      EXPECT_EQ(seen.losses, whole.losses) << saved << " to " << loaded;
      EXPECT_EQ(seen.digest, whole.digest) << saved << " to " << loaded;
    }
  }
  EXPECT_EQ(digests.size(), 1u);
}

TEST(Checkpoint, HybridShardingSavesEveryElementOnce) {
  const TestModel model = test_model("awkward");
  const RankOptions hybrid{.strategy = "fsdp",
                           .change = [](dist::ParallelOptions& o) { o.shard_ranks = 2; }};
  const Seen whole = uninterrupted(model, {}, 1);
  const TemporaryDirectory directory;
  const Seen saved = save_at_stop(model, hybrid, 4, directory.path());
  const TemporaryDirectory plain;
  EXPECT_EQ(save_at_stop(model, {}, 1, plain.path()).state, saved.state);
  EXPECT_EQ(go_on(model, {.strategy = "zero1"}, 3, directory.path()).losses, whole.losses);
  EXPECT_EQ(go_on(model, hybrid, 4, plain.path()).losses, whole.losses);
}

struct Big : nn::Module {
  nn::Linear fc1{64, 128}, fc2{128, 64};
  Big() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

// A checkpoint of Big without training.
void save_big(const std::string& strategy, int ranks, const std::string& directory,
              Ref<dist::CheckpointStorage> storage = dist::local_storage()) {
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    Big model;
    dist::Parallel parallel(model, comm, {.strategy = strategy});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory, .storage = storage});
    checkpoints.save({.step = 7});
    checkpoints.wait();
  });
}

TEST(Checkpoint, WritingIsDividedEvenlyAmongRanks) {
  for (const char* strategy : {"ddp", "zero1", "fsdp"}) {
    const TemporaryDirectory directory;
    save_big(strategy, 4, directory.path());
    dist::CheckpointReader reader(directory / "step-00000007");
    ASSERT_EQ(reader.manifest().files.size(), 4u);
    const int64_t share = (64 * 128 * 2 + 64 + 128) * 4 / 4;
    for (const dist::StoredFile& file : reader.manifest().files)
      EXPECT_NEAR(static_cast<double>(file.bytes - file.head_bytes), static_cast<double>(share),
                  256)
          << strategy;
  }
}

TEST(Checkpoint, ARankReadsItsOwnRangesOnly) {
  const TemporaryDirectory directory;
  save_big("ddp", 2, directory.path());
  std::atomic<int64_t> bytes{0};
  const auto counting = dist::hooked_storage(dist::local_storage(),
                                             [&bytes](const dist::StorageOperation& operation) {
                                               if (operation.action == dist::StorageAction::read &&
                                                   operation.path.ends_with(".safetensors"))
                                                 bytes += operation.bytes;
                                               return dist::StorageFault{};
                                             });
  const auto load = [&](const char* strategy, int64_t block) {
    bytes = 0;
    const TemporaryDirectory copy;
    dist::run_thread_ranks(4, [&](dist::Communicator& comm) {
      Big model;
      dist::Parallel parallel(model, comm, {.strategy = strategy});
      dist::Checkpointer saving(model, parallel, {.directory = copy.path(), .block_bytes = block});
      saving.save({.step = 1});
      saving.wait();
      dist::Checkpointer loading(model, parallel, {.directory = copy.path(), .storage = counting});
      loading.load(copy / "step-00000001");
    });
    // Together they also look at each file's header, once.
    const auto local = dist::local_storage();
    for (const auto& file : dist::read_manifest(*local, copy / "step-00000001").files)
      bytes -= file.head_bytes;
    return bytes.load();
  };
  const int64_t whole = (64 * 128 * 2 + 64 + 128) * 4;
  EXPECT_EQ(load("ddp", 64), 4 * whole) << "every rank needs everything";
  EXPECT_LE(load("zero3", 64), whole + 4 * 4 * 2 * 64);
  // Big blocks are read whole even where a part is wanted, and no more than that.
  EXPECT_LE(load("zero3", 1 << 20), 4 * whole);
}

// A rank that trains within a limit resumes within it: beside the state itself, loading needs a
// copy of the parameters, never one of the optimizer's state.
TEST(Checkpoint, LoadingTakesLittleMemoryBesideTheState) {
  const TemporaryDirectory stepped;
  const auto run = [&](const std::function<void(Big&, dist::Parallel&, optim::AdamW&)>& body) {
    dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
      Big model;
      dist::Parallel parallel(model, comm, {.strategy = "zero3"});
      optim::AdamW optimizer(parallel.parameters());
      body(model, parallel, optimizer);
    });
  };
  run([&](Big& model, dist::Parallel& parallel, optim::AdamW& optimizer) {
    backward(sum(square(model(ones({2, 64})))));
    optimizer.step();
    dist::Checkpointer checkpoints(model, parallel, {.directory = stepped.path()});
    checkpoints.add(optimizer);
    checkpoints.save({.step = 1});
    checkpoints.wait();
  });
  run([&](Big& model, dist::Parallel& parallel, optim::AdamW& optimizer) {
    dist::Checkpointer checkpoints(model, parallel, {.directory = stepped.path()});
    checkpoints.add(optimizer);
    Ledger& ledger = current_ledger();
    ledger.reset_peaks();
    const int64_t before = ledger.current_total();
    checkpoints.resume();
    const int64_t share = (64 * 128 * 2 + 64 + 128) * 4 / 2;
    EXPECT_NEAR(static_cast<double>(ledger.current_total() - before), 2.0 * share, 2048);
    EXPECT_LE(ledger.peak_total() - before, 3 * share + 4096);
  });
}

TEST(Checkpoint, TheSnapshotIsOfTheMomentOfTheCall) {
  const TestModel model = test_model("awkward");
  const TemporaryDirectory directory;
  const TemporaryDirectory reference;
  const Seen at_stop = save_at_stop(model, {}, 2, reference.path());
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  const auto gated =
      dist::hooked_storage(dist::local_storage(), [&](const dist::StorageOperation& operation) {
        if (operation.action == dist::StorageAction::create) {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return open; });
        }
        return dist::StorageFault{};
      });
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    TrainingRank rank(model, comm, {.strategy = "zero1"});
    rank.train(0, kStop);
    const auto checkpoints =
        rank.checkpointer({.directory = directory.path(), .storage = gated, .block_bytes = 256});
    Ledger& ledger = current_ledger();
    const int64_t before = ledger.current(Category::other);
    checkpoints->save({.step = kStop});
    EXPECT_TRUE(checkpoints->busy());
    EXPECT_GT(ledger.current(Category::other), before) << "the copy counts";
    EXPECT_FALSE(checkpoints->saved().has_value());
    rank.train(kStop, kEnd);  // changes everything that is being saved
    comm.barrier();
    {
      const std::lock_guard lock(mutex);
      open = true;
    }
    changed.notify_all();
    checkpoints->wait();
    EXPECT_FALSE(checkpoints->busy());
    EXPECT_EQ(ledger.current(Category::other), before);
    EXPECT_EQ(checkpoints->saved()->digest, at_stop.state);
    EXPECT_EQ(checkpoints->saved()->step, kStop);
  });
}

TEST(Checkpoint, SavingAgainReplacesTheSameStep) {
  const TestModel model = test_model("mlp");
  const TemporaryDirectory directory;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    TrainingRank rank(model, comm, {.strategy = "zero2"});
    const auto checkpoints =
        rank.checkpointer({.directory = directory.path(), .asynchronous = false});
    checkpoints->save({.step = 1});
    const std::string first = checkpoints->saved()->digest;
    rank.train(0, 1);
    checkpoints->save({.step = 1});
    EXPECT_NE(checkpoints->saved()->digest, first);
    const auto loaded = checkpoints->load(checkpoints->saved()->path);
    EXPECT_EQ(loaded.digest, checkpoints->saved()->digest);
  });
  EXPECT_EQ(dist::local_storage()->list(directory.path()),
            std::vector<std::string>{"step-00000001"});
}

TEST(Checkpoint, AllOfTheProgressComesBack) {
  const TemporaryDirectory directory;
  dist::TrainingProgress progress{.step = 12,
                                  .epoch = 3,
                                  .consumed = 1'000'000'000'007,
                                  .metric = 0.1,
                                  .best_metric = -1.0 / 3};
  progress.values = {{"word", std::string("süß \"quoted\"\n")},
                     {"count", int64_t{-5}},
                     {"rate", 3.0},
                     {"limit", std::numeric_limits<double>::infinity()}};
  progress.notes = {{"host", "a"}};
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Big model;
    dist::Parallel parallel(model, comm, {.strategy = "fsdp"});
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1});
    optim::Scheduler scheduler(optimizer, optim::linear_warmup(1, 100));
    scheduler.seek(12);
    Tensor scale = full({2, 3}, 5);
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.add(optimizer);
    checkpoints.add(scheduler);
    checkpoints.add({{"scale", scale}});
    manual_seed(77);
    checkpoints.save(progress);
    manual_seed(5);
    fill_(scale, 0);
    scheduler.seek(0);
    const auto loaded = checkpoints.resume();
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->progress.step, 12);
    EXPECT_EQ(loaded->progress.epoch, 3);
    EXPECT_EQ(loaded->progress.consumed, progress.consumed);
    EXPECT_EQ(loaded->progress.metric, 0.1);
    EXPECT_EQ(loaded->progress.best_metric, -1.0 / 3);
    std::map<std::string, std::variant<int64_t, double, std::string>> values;
    for (const auto& [name, value] : loaded->progress.values)
      values[name] = value;
    for (const auto& [name, value] : progress.values)
      EXPECT_EQ(values[name], value) << name;
    EXPECT_EQ(loaded->progress.notes, progress.notes);
    EXPECT_EQ(loaded->strategy, "fsdp");
    EXPECT_EQ(loaded->ranks, 2);
    EXPECT_EQ(loaded->seed, 77u);
    EXPECT_EQ(random_state().seed, 77u);
    EXPECT_EQ(scheduler.position(), 12);
    EXPECT_EQ(optimizer.lr(), 0.13);
    EXPECT_EQ(scale.to_vector<float>(), std::vector<float>(6, 5.0f));
  });
}

// The loop of an app: batches in a shuffled order over several epochs, stopped in the middle of one
// and gone on with on another number of ranks.
TEST(Checkpoint, DataGoesOnWithTheNextSample) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kSteps = 12;  // of 5 an epoch
  const Tensor pixels = empty({37, 2, 3}, {.dtype = u8});
  const Tensor labels = empty({37}, {.dtype = u8});
  for (int64_t i = 0; i < pixels.numel(); ++i)
    pixels.data<uint8_t>()[i] =
        static_cast<uint8_t>(random_below({3}, static_cast<uint64_t>(i), 256));
  for (int64_t i = 0; i < labels.numel(); ++i)
    labels.data<uint8_t>()[i] = static_cast<uint8_t>(i % 10);
  const data::Images images(pixels, labels);

  const auto run = [&](const RankOptions& options, const std::string& directory, int64_t until,
                       dist::Communicator& comm) {
    nn::Linear model(6, 10);
    dist::ParallelOptions parallel_options{.strategy = options.strategy, .logical_shards = 4};
    parallel_options.mean_over_shards = false;
    dist::Parallel parallel(model, comm, parallel_options);
    std::vector<data::RowRange> rows;
    for (const dist::Shard& shard : parallel.shards()) {
      if (!shard.ghost) rows.push_back({shard.first_row(kRows), shard.rows(kRows)});
    }
    data::Loader loader(images, {.batch = kRows, .seed = 9, .rows = rows});
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.05});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory});
    checkpoints.add(optimizer);
    int64_t step = 0;
    if (const auto resumed = checkpoints.resume()) {
      step = resumed->progress.step;
      loader.seek({resumed->progress.epoch, resumed->progress.consumed});
    }
    Seen seen;
    while (step < until) {
      const auto batch = loader.next();
      if (!batch) continue;
      parallel.begin_step(static_cast<uint64_t>(step));
      int64_t at = 0;
      for (const dist::Shard& shard : parallel.shards()) {
        const int64_t row = shard.ghost ? 0 : std::exchange(at, at + 2);
        parallel.begin_shard(shard, row < batch->count);
        parallel.backward(cross_entropy(model(flatten(narrow(batch->inputs, 0, row, 2), 1)),
                                        narrow(batch->targets, 0, row, 2),
                                        {.reduction = Reduction::sum}) *
                          (1.0 / static_cast<double>(batch->whole_targets)));
      }
      optimizer.step();
      seen.losses.push_back(parallel.loss());
      ++step;
    }
    const data::LoaderState position = loader.state();
    checkpoints.save({.step = step, .epoch = position.epoch, .consumed = position.consumed});
    checkpoints.wait();
    return seen;
  };
  const TemporaryDirectory whole;
  const Seen uninterrupted =
      on_ranks(1, [&](dist::Communicator& comm) { return run({}, whole.path(), kSteps, comm); });
  const TemporaryDirectory parts;
  std::vector<double> losses;
  const std::pair<int64_t, Place> stretches[] = {
      {3, {"zero1", 2}}, {5, {"zero3", 3}}, {9, {"ddp", 4}}, {kSteps, {"fsdp", 2}}};
  for (const auto& [until, place] : stretches) {
    const Seen seen = on_ranks(
        place.ranks, [&, until = until, strategy = place.strategy](dist::Communicator& comm) {
          return run({.strategy = strategy}, parts.path(), until, comm);
        });
    losses.insert(losses.end(), seen.losses.begin(), seen.losses.end());
  }
  EXPECT_EQ(losses, uninterrupted.losses);
}

TEST(Checkpoint, KeepsTheLastTheBestAndThePinned) {
  const TemporaryDirectory directory;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Big model;
    dist::Parallel parallel(model, comm, {.strategy = "zero1"});
    dist::Checkpointer checkpoints(model, parallel,
                                   {.directory = directory.path(), .keep = {.last = 2, .best = 1}});
    const double metrics[] = {5, 4, 1, 3, 2, 6, 7};
    for (int64_t step = 1; step <= 7; ++step) {
      checkpoints.save({.step = step, .metric = metrics[step - 1]});
      checkpoints.wait();
      if (step == 2 && comm.rank() == 0)
        dist::CheckpointDirectory(directory.path()).pin("step-00000002");
      comm.barrier();
    }
  });
  dist::CheckpointDirectory kept(directory.path());
  std::vector<int64_t> steps;
  for (const auto& stored : kept.list())
    steps.push_back(stored.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{2, 3, 6, 7})) << "pinned, best, last two";
  EXPECT_EQ(kept.best()->step, 3);
  EXPECT_EQ(kept.best(true)->step, 7);
  EXPECT_EQ(kept.latest()->step, 7);
  EXPECT_THROW(kept.pin("step-00000001"), Error);
  kept.unpin("step-00000002");
  EXPECT_EQ(kept.thin({.last = 1, .best = 0}),
            (std::vector<std::string>{"step-00000002", "step-00000003", "step-00000006"}));
}

}  // namespace
}  // namespace weft::test
