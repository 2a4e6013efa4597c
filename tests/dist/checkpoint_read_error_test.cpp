// What storage fails to read is not thereby damaged: a resume ends with the error, and nothing that
// cannot be looked at goes.
#include "dist/checkpoint.h"
#include "dist/checkpoint_reader.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace weft::test {
namespace {

// The checkpoints that are there when a resume has ended in an error that is none of theirs.
std::vector<std::string> resume_through(const std::string& directory, const dist::StorageHook& hook,
                                        const std::string& what) {
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "ddp"});
    dist::Checkpointer checkpoints(
        model, parallel,
        {.directory = directory, .storage = dist::hooked_storage(dist::local_storage(), hook)});
    try {
      checkpoints.resume();
      FAIL() << "expected an error";
    } catch (const dist::DamagedCheckpoint& error) {
      FAIL() << "expected an error of the plain kind, got " << error.what();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  });
  return dist::local_storage()->list(directory);
}

TEST(CheckpointDamage, AReadErrorIsNoDamageOfTheCheckpoint) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2});
  const std::vector<std::string> both = {"step-00000001", "step-00000002"};
  for (const int error : {EIO, ESTALE, ENOMEM, EMFILE}) {
    for (const auto action : {dist::StorageAction::open, dist::StorageAction::read}) {
      for (const std::string file :
           {"step-00000002/manifest.json", "step-00000002/rank-00001-of-00002.safetensors"}) {
        const auto hook = [&](const dist::StorageOperation& operation) {
          const bool fails = operation.action == action && operation.path.ends_with(file);
          return dist::StorageFault{.error = fails ? error : 0};
        };
        EXPECT_EQ(resume_through(directory.path(), hook, file + ", got " + std::strerror(error)),
                  both);
      }
    }
  }
}

// A file that is not there is damage, however the storage comes to say so.
TEST(CheckpointDamage, AMissingFileIsDamage) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2, 3});
  std::filesystem::remove(directory / "step-00000002/rank-00000-of-00002.safetensors");
  std::filesystem::remove(directory / "step-00000003/manifest.json");
  std::filesystem::create_directory(directory / "step-00000003/manifest.json");
  write_bytes(directory / "step-00000004", "no folder");
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "ddp"});
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.add(optimizer);
    const auto resumed = checkpoints.resume();
    ASSERT_TRUE(resumed.has_value());
    EXPECT_EQ(resumed->progress.step, 1);
    EXPECT_EQ(resumed->passed_over.size(), 3u);
  });
}

// Which is the best is not known while one cannot be read: none goes.
TEST(CheckpointDamage, AReadErrorRemovesNoBestCheckpoint) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2, 3});
  const auto broken =
      dist::hooked_storage(dist::local_storage(), [](const dist::StorageOperation& operation) {
        const bool fails = operation.action == dist::StorageAction::read &&
                           operation.path.find("step-00000001") != std::string::npos;
        return dist::StorageFault{.error = fails ? EIO : 0};
      });
  dist::CheckpointDirectory checkpoints(directory.path(), broken);
  EXPECT_THROW(checkpoints.best(), dist::StorageError);
  EXPECT_THROW(checkpoints.thin({.last = 1, .best = 1}), dist::StorageError);
  EXPECT_EQ(checkpoints.list().size(), 3u);
}

TEST(CheckpointDamage, WhatIsSetAsideIsNoCheckpointAndStays) {
  const TemporaryDirectory directory;
  dist::CheckpointDirectory checkpoints(directory.path());
  const std::vector<std::string> names = {"step-00000001", "step-00000001.damaged",
                                          "step-00000001.damaged.2"};
  for (const std::string& name : names) {
    std::filesystem::create_directory(directory / "step-00000001");
    if (name == names[0]) continue;
    EXPECT_EQ(checkpoints.set_aside(checkpoints.latest().value()), directory / name);
  }
  std::filesystem::create_directory(directory / "step-00000001");
  checkpoints.clean();
  EXPECT_EQ(dist::local_storage()->list(directory.path()), names);
  EXPECT_EQ(checkpoints.list().size(), 1u);
}

// However many ranks have saved: a reader has few files open at a time.
TEST(CheckpointResume, ManyFilesAreReadWithFewDescriptors) {
  struct Wide : nn::Module {
    nn::Linear fc{64, 64};
    Wide() { add("fc", fc); }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  constexpr int kRanks = 40;
  const TemporaryDirectory directory;
  dist::run_thread_ranks(kRanks, [&](dist::Communicator& comm) {
    Wide model;
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.save({.step = 1});
    checkpoints.wait();
  });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int highest = dup(STDERR_FILENO);  // numbers below are taken, but for a few
  close(highest);
  const rlimit limit{static_cast<rlim_t>(highest) + 24, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  try {
    dist::CheckpointReader reader(directory / "step-00000001");
    EXPECT_GE(reader.manifest().files.size(), 36u) << "padding leaves the last ranks nothing";
    EXPECT_EQ(reader.verify(), std::vector<std::string>{});
    const auto comm = dist::make_single_rank();
    Wide model;
    dist::Parallel parallel(model, *comm, {});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    EXPECT_TRUE(checkpoints.resume().has_value());
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace weft::test
