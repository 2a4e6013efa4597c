// Resuming from a directory whose newest checkpoints are damaged, or are another model's: what is
// whole is found, what is not is named, and what does not fit leaves every rank as it was.
#include "core/parallel.h"
#include "core/random.h"
#include "dist/checkpoint.h"
#include "dist/checkpoint_writer.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

namespace weft::test {
namespace {

// Ranks that resume, as those of an app do.
struct Resuming {
  Resuming(dist::Communicator& comm, const std::string& directory, const char* strategy)
      : parallel(model, comm, {.strategy = strategy}),
        optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9}),
        checkpoints(model, parallel, {.directory = directory}) {
    checkpoints.add(optimizer);
  }
  Small model;
  dist::Parallel parallel;
  optim::Sgd optimizer;
  dist::Checkpointer checkpoints;
};

// Calls damaged(file, what) for each way to damage a file of the checkpoint: a flip in every
// `stride`-th byte, every `stride`-th length, a byte too much, and no file. Then all is as before.
template <class F>
void for_each_damage(const std::string& checkpoint, size_t stride, const F& damaged) {
  for (const std::string& name : dist::local_storage()->list(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string whole = file_bytes(path);
    {
      // In place, and the file shorter and shorter: files that are written anew go to the disk.
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      const auto put = [&](size_t at, int byte) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte));
        file.flush();
      };
      for (size_t at = 0; at < whole.size(); at += stride) {
        put(at, whole[at] ^ (1 << (at / stride % 8)));
        damaged(name, concat({name, " with a flip in byte ", at}));
        put(at, whole[at]);
      }
    }
    for (size_t cut = 1; cut <= whole.size(); cut += stride) {
      std::filesystem::resize_file(path, whole.size() - cut);
      damaged(name, concat({name, " without its last ", cut, " bytes"}));
    }
    write_bytes(path, whole + '\0');
    damaged(name, name + " with a byte more");
    std::filesystem::remove(path);
    damaged(name, "no " + name);
    write_bytes(path, whole);
  }
}

void expect_older(const std::optional<dist::LoadedCheckpoint>& resumed, const std::string& name,
                  const std::string& what) {
  ASSERT_TRUE(resumed.has_value()) << what;
  ASSERT_EQ(resumed->progress.step, 1) << what;
  ASSERT_EQ(resumed->passed_over.size(), 1u) << what;
  EXPECT_NE(resumed->passed_over[0].find("step-00000002/" + name), std::string::npos)
      << what << ": " << resumed->passed_over[0];
}

TEST(CheckpointResume, EveryFlipAndEveryCutLeadsToTheOlderOne) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2});
  const int threads = num_threads();
  set_num_threads(1);  // there is nothing to share out
  const auto comm = dist::make_single_rank();
  Resuming rank(*comm, directory.path(), "ddp");
  ASSERT_EQ(rank.checkpoints.resume()->progress.step, 2);
  int count = 0;
  for_each_damage(directory / "step-00000002", 1, [&](const auto& name, const auto& what) {
    ASSERT_NO_FATAL_FAILURE(expect_older(rank.checkpoints.resume(), name, what));
    ++count;
  });
  EXPECT_GT(count, 2 * 3500);
  const auto resumed = rank.checkpoints.resume();
  EXPECT_EQ(resumed->progress.step, 2);
  EXPECT_TRUE(resumed->passed_over.empty());
  set_num_threads(threads);
}

// No rank reads all of it, and each hears of what another has found.
TEST(CheckpointResume, RanksNoticeForEachOther) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2});
  dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
    Resuming rank(comm, directory.path(), "zero3");
    const auto resume = [&](const std::string& name, const std::string& what) {
      comm.barrier();
      expect_older(rank.checkpoints.resume(), name, what);
      comm.barrier();
    };
    if (comm.rank() == 0) {
      for_each_damage(directory / "step-00000002", 97, [&](const auto& name, const auto& what) {
        int64_t more = static_cast<int64_t>(name.size());
        comm.broadcast({&more, 1, i64}, 0);
        std::string text = name;
        comm.broadcast({text.data(), more, u8}, 0);
        resume(name, what);
      });
    }
    for (;;) {
      int64_t more = 0;
      comm.broadcast({&more, 1, i64}, 0);
      if (more == 0) break;
      std::string name(static_cast<size_t>(more), ' ');
      comm.broadcast({name.data(), more, u8}, 0);
      resume(name, "on rank " + std::to_string(comm.rank()));
    }
    EXPECT_EQ(rank.checkpoints.resume()->progress.step, 2);
  });
}

// What resume() does about damage, on several ranks.
TEST(CheckpointDamage, ResumeTakesTheNewestThatIsWholeAndSaysWhatItPassedOver) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2, 3});
  const auto flip = [&](const std::string& name, size_t from_end) {
    std::string bytes = file_bytes(directory / name);
    bytes[bytes.size() - from_end] ^= 4;
    write_bytes(directory / name, bytes);
  };
  flip("step-00000003/manifest.json", 100);
  flip("step-00000002/rank-00000-of-00002.safetensors", 1);
  const auto resume = [&](const std::function<void(dist::Checkpointer&, Small&)>& f) {
    dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
      Small model;
      dist::Parallel parallel(model, comm, {.strategy = "zero3"});
      optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
      dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
      checkpoints.add(optimizer);
      f(checkpoints, model);
    });
  };
  resume([&](dist::Checkpointer& checkpoints, Small&) {
    const auto resumed = checkpoints.resume();
    ASSERT_TRUE(resumed.has_value());
    EXPECT_EQ(resumed->progress.step, 1);
    ASSERT_EQ(resumed->passed_over.size(), 2u);
    EXPECT_NE(resumed->passed_over[0].find("step-00000003/manifest.json"), std::string::npos);
    EXPECT_NE(resumed->passed_over[1].find("step-00000002/rank-00000"), std::string::npos);
    EXPECT_NE(resumed->passed_over[1].find("tensor "), std::string::npos);
  });
  flip("step-00000001/manifest.json", 50);
  resume([&](dist::Checkpointer& checkpoints, Small&) {
    EXPECT_THROW(checkpoints.resume(), dist::DamagedCheckpoint);
  });
}

TEST(CheckpointDamage, AnotherModelIsNoDamage) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  struct Other : nn::Module {
    nn::Linear fc{3, 6};
    Tensor more = ones({2});
    Other() {
      add("fc", fc);
      add_parameter("more", more);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Other model;
    dist::Parallel parallel(model, comm, {.strategy = "ddp"});
    const auto start = model.fc.bias.to_vector<float>();
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    try {
      checkpoints.resume();
      FAIL() << "expected an error";
    } catch (const dist::DamagedCheckpoint&) {
      FAIL() << "expected an error of the plain kind";
    } catch (const Error& error) {
      const std::string text = error.what();
      for (const char* part : {"missing: model.more", "model.fc.bias: expected f32[6], got f32[5]",
                               "unexpected: model.wide", "unexpected: model.count"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_EQ(model.fc.bias.to_vector<float>(), start);
  });
}

TEST(CheckpointDamage, AnotherOptimizerIsRefused) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "zero1"});
    optim::AdamW optimizer(parallel.parameters());
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.add(optimizer);
    const auto start = model.fc.bias.to_vector<float>();
    EXPECT_THROW(checkpoints.resume(), Error);
    EXPECT_EQ(model.fc.bias.to_vector<float>(), start);
  });
}

// What does not fit may show on one rank alone, here where the optimizer is given its state: then
// no rank may have taken its own.
TEST(CheckpointResume, AMisfitOnOneRankLeavesAllAsTheyWere) {
  constexpr int64_t kCount = 4096;
  struct Pair : nn::Module {
    Tensor a = ones({kCount});
    Tensor b = ones({kCount});
    Pair() {
      add_parameter("a", a);
      add_parameter("b", b);
    }
    Tensor forward(const Tensor& x) override { return x * sum(a) + sum(b); }
  };
  const auto number = [](int64_t value) {
    return from_values(std::span<const int64_t>(&value, 1), {});
  };
  const TemporaryDirectory directory;
  const auto write = [&](int64_t step, const std::vector<std::string>& states) {
    std::vector<NamedTensor> tensors = {{"model.a", full({kCount}, 7)},
                                        {"model.b", full({kCount}, 7)},
                                        {"optimizer.step", number(9)},
                                        {"optimizer.step.b", number(9)}};
    for (const std::string& state : states)
      tensors.push_back({"optimizer." + state + ".b", full({kCount}, 2)});
    dist::Manifest manifest;
    manifest.progress.step = step;
    manifest.seed = 77;
    manifest.schedule = 3;
    return dist::write_checkpoint(*dist::local_storage(), directory.path(), manifest, tensors);
  };
  const std::string of_sgd = write(1, {"momentum"});
  const std::string of_adam = write(2, {"average", "square_average"});
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Pair model;
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.1});
    optim::Scheduler scheduler(optimizer, optim::linear_warmup(1, 10));
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.add(optimizer);
    checkpoints.add(scheduler);
    ASSERT_EQ(optimizer.state_dict().size(), 2u) << "each rank steps one of the two";
    manual_seed(5);
    const auto first = [&] { return parallel.held().at(0).values.to_vector<float>().at(0); };
    EXPECT_NE(error_of([&] { checkpoints.load(of_sgd); }).find("unexpected: momentum.b"),
              std::string::npos);
    EXPECT_EQ(optimizer.steps(), 0) << "rank " << comm.rank();
    EXPECT_EQ(optimizer.state_bytes(), 0);
    EXPECT_EQ(scheduler.position(), 0);
    EXPECT_EQ(random_state().seed, 5u);
    EXPECT_EQ(first(), 1.0f);
    checkpoints.load(of_adam);
    EXPECT_EQ(optimizer.steps(), 9);
    EXPECT_EQ(optimizer.state_bytes(), comm.rank() == 0 ? 0 : 2 * 4 * kCount);
    EXPECT_EQ(scheduler.position(), 3);
    EXPECT_EQ(random_state().seed, 77u);
    EXPECT_EQ(first(), 7.0f);
  });
}

// A schedule goes on where it was or not at all.
TEST(CheckpointResume, ASchedulesPositionMustBeThere) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  const auto comm = dist::make_single_rank();
  Resuming rank(*comm, directory.path(), "ddp");
  optim::Scheduler scheduler(rank.optimizer, optim::linear_warmup(1, 10));
  rank.checkpoints.add(scheduler);
  EXPECT_NE(error_of([&] {
              rank.checkpoints.resume();
            }).find("expected the position of a schedule, got none"),
            std::string::npos);
  EXPECT_EQ(rank.optimizer.steps(), 0);
}

}  // namespace
}  // namespace weft::test
