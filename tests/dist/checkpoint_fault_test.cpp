// Saves that fail: any operation of any rank, kills, full disks, slow disks, ranks that die.
#include "core/random.h"
#include "dist/checkpoint.h"
#include "dist/shm.h"
#include "tests/support/processes.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_rank.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <thread>

namespace weft::test {
namespace {

using dist::CheckpointOptions;
using dist::StorageAction;
using dist::StorageFault;
using dist::StorageOperation;

// Names of what a directory holds, with what hides.
std::vector<std::string> entries(const std::string& directory) {
  return dist::local_storage()->list(directory);
}

// What a save of this rank does, in order.
std::vector<StorageOperation> operations_of_a_save(int ranks, int rank) {
  const TemporaryDirectory directory;
  std::vector<StorageOperation> operations;
  std::mutex mutex;
  dist::run_thread_ranks(ranks, [&](dist::Communicator& comm) {
    TrainingRank training(test_model("mlp"), comm, {.strategy = "zero1"});
    auto storage = dist::local_storage();
    bool record = false;
    if (comm.rank() == rank) {
      storage = dist::hooked_storage(storage, [&](const StorageOperation& operation) {
        const std::lock_guard lock(mutex);
        if (record) operations.push_back(operation);
        return StorageFault{};
      });
    }
    const auto checkpoints = training.checkpointer(
        {.directory = directory.path(), .storage = storage, .keep = {.last = 1, .best = 0}});
    checkpoints->save({.step = 1});
    checkpoints->wait();
    record = true;
    checkpoints->save({.step = 2});
    checkpoints->wait();
  });
  return operations;
}

TEST(CheckpointFault, ASaveAnnouncesEveryOperation) {
  std::vector<StorageAction> actions;
  for (const StorageOperation& operation : operations_of_a_save(2, 0))
    actions.push_back(operation.action);
  using enum StorageAction;
  EXPECT_EQ(actions, (std::vector<StorageAction>{
                         make_directory, create,         write,          sync,
                         close,  // this rank's file
                         list,           create,         write,          sync,
                         close,          sync_directory,                  // the manifest
                         list,           rename,         sync_directory,  // the checkpoint is there
                         list,           list,           list,           remove_directory,
                         rename,         list,  // the one before it goes
                         remove_file,    remove_file,    remove_file,    remove_directory}));
  actions.clear();
  for (const StorageOperation& operation : operations_of_a_save(2, 1))
    actions.push_back(operation.action);
  EXPECT_EQ(actions, (std::vector<StorageAction>{make_directory, create, write, sync, close}));
}

// Fails one operation after the other of the second save, on one rank. Once the checkpoint is there
// for good, it is no failed save any more.
void expect_every_failure_told(int failing, bool asynchronous) {
  const auto operations = operations_of_a_save(2, failing);
  const auto count = static_cast<int>(operations.size());
  int saved_at = count;
  for (int i = 0; i < count; ++i) {
    if (operations[static_cast<size_t>(i)].action == StorageAction::sync_directory)
      saved_at = i + 1;
  }
  for (int fail_at = 0; fail_at < count; ++fail_at) {
    const TemporaryDirectory directory;
    std::vector<std::string> lines;
    dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
      TrainingRank training(test_model("mlp"), comm, {.strategy = "zero1"});
      std::atomic<int> countdown{-1};
      StorageOperation failed;
      auto storage = dist::local_storage();
      if (comm.rank() == failing) {
        storage = dist::hooked_storage(storage, [&](const StorageOperation& operation) {
          if (countdown.load() < 0 || countdown.fetch_sub(1) != 0) return StorageFault{};
          failed = operation;
          return StorageFault{.error = ENOSPC, .written = operation.bytes / 2};
        });
      }
      const auto checkpoints = training.checkpointer(
          {.directory = directory.path(),
           .storage = storage,
           .keep = {.last = 1, .best = 0},
           .asynchronous = asynchronous,
           .report = [&](const std::string& line) { lines.push_back(line); }});
      training.train(0, 1);
      checkpoints->save({.step = 1});
      checkpoints->wait();
      const std::string whole = checkpoints->saved()->digest;
      training.train(1, 2);
      countdown = fail_at;
      std::string text;
      try {
        checkpoints->save({.step = 2});
        checkpoints->wait();
      } catch (const dist::CheckpointError& error) {
        text = error.what();
      }
      const bool saves = fail_at >= saved_at;
      const bool told = !saves || comm.rank() == failing;
      if (saves) {
        EXPECT_EQ(text, "") << fail_at;
        EXPECT_EQ(checkpoints->saved()->step, 2);
        if (told) text = lines.empty() ? "nothing" : lines[0];
      } else {
        EXPECT_NE(text.find("rank " + std::to_string(failing) + ": "), std::string::npos) << text;
      }
      if (told) {
        const char* const what = saves ? "step 2 is saved, but" : "save step 2";
        EXPECT_NE(text.find(what), std::string::npos) << fail_at << ": " << text;
        EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
      }
      if (comm.rank() == failing) {
        EXPECT_NE(text.find(failed.path), std::string::npos) << text;
        EXPECT_NE(text.find("expected to " + dist::to_string(failed.action)), std::string::npos)
            << text;
      }
      EXPECT_EQ(checkpoints->failures(), saves ? 0 : 1);
      // The checkpoint before is as it was, or the new one is there whole.
      const auto resumed = checkpoints->resume();
      ASSERT_TRUE(resumed.has_value()) << fail_at;
      if (resumed->progress.step == 1) {
        EXPECT_EQ(resumed->digest, whole);
      }
      EXPECT_TRUE(resumed->passed_over.empty());
      // And the next save works.
      training.train(resumed->progress.step, 3);
      checkpoints->save({.step = 3});
      checkpoints->wait();
      EXPECT_EQ(checkpoints->saved()->step, 3);
    });
    for (const std::string& name : entries(directory.path()))
      EXPECT_TRUE(name == "step-00000003" || name.ends_with(".removed.partial"))
          << fail_at << " left " << name;
  }
}

TEST(CheckpointFault, EveryOperationOfRankZeroMayFail) {
  expect_every_failure_told(0, true);
}

TEST(CheckpointFault, EveryOperationOfAnotherRankMayFail) {
  expect_every_failure_told(1, true);
  expect_every_failure_told(1, false);
}

// Somebody has looked at a checkpoint with a tool that keeps notes there.
TEST(CheckpointFault, FoldersInOldCheckpointsGoWithThem) {
  const TemporaryDirectory directory;
  const auto comm = dist::make_single_rank();
  TrainingRank training(test_model("mlp"), *comm, {});
  for (int64_t step = 1; step <= 3; ++step) {
    const auto checkpoints = training.checkpointer(
        {.directory = directory.path(), .keep = {.last = 1, .best = 0}, .asynchronous = false});
    checkpoints->save({.step = step});
    const std::string notes = checkpoints->saved()->path + "/.notes/more";
    std::filesystem::create_directories(notes);
    std::filesystem::create_symlink(directory.path(), notes + "/link");
  }
  EXPECT_EQ(entries(directory.path()), std::vector<std::string>{"step-00000003"});
}

// As where a network's file system keeps files that somebody has open.
TEST(CheckpointFault, WhatCannotBeRemovedFailsNoSaveAndNoStart) {
  const TemporaryDirectory directory;
  const auto comm = dist::make_single_rank();
  TrainingRank training(test_model("mlp"), *comm, {});
  std::vector<std::string> lines;
  bool busy = true;
  CheckpointOptions options{.directory = directory.path(), .keep = {.last = 1, .best = 0}};
  options.storage = dist::hooked_storage(dist::local_storage(), [&](const StorageOperation& o) {
    const bool fails = busy && o.action == StorageAction::remove_directory &&
                       o.path.find("step-00000001") != std::string::npos &&
                       std::filesystem::exists(o.path);
    return StorageFault{.error = fails ? EBUSY : 0};
  });
  options.report = [&](const std::string& line) { lines.push_back(line); };
  {
    const auto checkpoints = training.checkpointer(options);
    for (int64_t step = 1; step <= 3; ++step)
      checkpoints->save({.step = step});
    checkpoints->wait();
    EXPECT_EQ(checkpoints->saved()->step, 3);
    EXPECT_EQ(checkpoints->failures(), 0);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("step 2 is saved, but"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(".step-00000001.removed.partial, got "), std::string::npos) << lines[0];
  EXPECT_EQ(training.checkpointer(options)->resume()->progress.step, 3);
  EXPECT_EQ(lines.size(), 2u) << "the next start has told it, too";
  busy = false;
  training.checkpointer(options);
  EXPECT_EQ(entries(directory.path()), std::vector<std::string>{"step-00000003"});
}

TEST(CheckpointFault, TrainingGoesOnWhereAsked) {
  const TemporaryDirectory directory;
  std::vector<std::string> lines;
  dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
    TrainingRank training(test_model("mlp"), comm, {.strategy = "fsdp"});
    std::atomic<bool> full{false};
    const auto storage =
        dist::hooked_storage(dist::local_storage(), [&](const StorageOperation& operation) {
          const bool fails = full && operation.action == StorageAction::write;
          return StorageFault{.error = fails ? ENOSPC : 0};
        });
    CheckpointOptions options{.directory = directory.path(), .storage = storage};
    options.on_failure = CheckpointOptions::OnFailure::go_on;
    options.report = [&](const std::string& line) { lines.push_back(line); };
    const auto checkpoints = training.checkpointer(options);
    checkpoints->save({.step = 1});
    checkpoints->wait();
    full = true;
    checkpoints->save({.step = 2});
    checkpoints->save({.step = 3});
    checkpoints->wait();
    EXPECT_EQ(checkpoints->failures(), 2);
    EXPECT_EQ(checkpoints->saved()->step, 1);
    full = false;
    checkpoints->save({.step = 4});
    checkpoints->wait();
    EXPECT_EQ(checkpoints->saved()->step, 4);
  });
  ASSERT_EQ(lines.size(), 2u) << "rank 0 alone reports";
  EXPECT_NE(lines[0].find("step 2"), std::string::npos);
  EXPECT_EQ(entries(directory.path()),
            (std::vector<std::string>{"step-00000001", "step-00000004"}));
}

TEST(CheckpointFault, ASlowDiskIsNoDeadRank) {
  const TemporaryDirectory directory;
  dist::run_thread_ranks(3,
                         [&](dist::Communicator& comm) {
                           TrainingRank training(test_model("mlp"), comm, {.strategy = "zero1"});
                           const auto storage = dist::hooked_storage(
                               dist::local_storage(), [&](const StorageOperation& operation) {
                                 if (comm.rank() == 1 && operation.action == StorageAction::sync)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                 return StorageFault{};
                               });
                           const auto checkpoints = training.checkpointer(
                               {.directory = directory.path(), .storage = storage});
                           checkpoints->save({.step = 1});
                           checkpoints->wait();
                           EXPECT_EQ(checkpoints->saved()->step, 1);
                         },
                         {.communicator = {.timeout_seconds = 0.5}});
}

TEST(CheckpointFault, ARankThatFailsDuringASaveHangsNobody) {
  const TemporaryDirectory directory;
  const auto run = [&] {
    dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
      TrainingRank training(test_model("mlp"), comm, {.strategy = "zero1"});
      const auto checkpoints = training.checkpointer({.directory = directory.path()});
      checkpoints->save({.step = 1});
      if (comm.rank() == 2) throw Error("rank 2 gives up");
      // The others find out in the save, or in what comes after it.
      checkpoints->save({.step = 2});
      checkpoints->wait();
      comm.barrier();
    });
  };
  try {
    run();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 2 gives up");
  }
}

// Runs `body` in a process of its own; its exit code, or 128 + the signal that ended it.
int in_process(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void train_and_save(dist::Communicator& comm, const std::string& directory, int64_t until,
                    const Ref<dist::CheckpointStorage>& storage,
                    const std::function<void(int64_t)>& at_step = {}) {
  manual_seed(1);
  TrainingRank training(test_model("mlp"), comm, {.strategy = "zero2"});
  const auto checkpoints = training.checkpointer(
      {.directory = directory, .storage = storage, .keep = {.last = 2, .best = 0}});
  const auto resumed = checkpoints->resume();
  for (int64_t step = resumed ? resumed->progress.step : 0; step < until; ++step) {
    if (at_step) at_step(step);
    training.train(step, step + 1);
    checkpoints->save({.step = step + 1});
    checkpoints->wait();
  }
}

// One of two processes is killed at one operation after the other of a save that also thins; the
// run goes on from a whole checkpoint to the same state.
TEST(CheckpointFault, AKillAtAnyOperationLeavesAWholeCheckpoint) {
  constexpr int64_t kSteps = 4;
  const auto digest_of = [](const std::string& directory) {
    return dist::read_manifest(*dist::local_storage(), directory + "/step-00000004").digest();
  };
  const TemporaryDirectory reference;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    train_and_save(comm, reference.path(), kSteps, dist::local_storage());
  });
  const std::string expected = digest_of(reference.path());
  for (const int victim : {0, 1}) {
    const auto count = static_cast<int>(operations_of_a_save(2, victim).size());
    for (int kill_at = 0; kill_at < count; ++kill_at) {
      const TemporaryDirectory directory;
      const std::string job = fresh_job_name();
      const auto outcomes = run_processes(2, [&](int rank) -> std::string {
        const auto comm = dist::join_shm(job, rank, 2);
        std::atomic<int> countdown{-1};
        const auto storage =
            dist::hooked_storage(dist::local_storage(), [&](const StorageOperation&) {
              if (countdown.load() >= 0 && countdown.fetch_sub(1) == 0) raise(SIGKILL);
              return StorageFault{};
            });
        train_and_save(*comm, directory.path(), kSteps, storage, [&](int64_t step) {
          if (rank == victim && step == 2) countdown = kill_at;
        });
        return "";
      });
      EXPECT_EQ(outcomes[static_cast<size_t>(victim)].signal, SIGKILL) << victim << ' ' << kill_at;
      EXPECT_NE(outcomes[static_cast<size_t>(1 - victim)].code, kReturned)
          << "the survivor is told";
      const auto left = dist::CheckpointDirectory(directory.path()).latest();
      ASSERT_TRUE(left.has_value());
      EXPECT_GE(left->step, 2);
      dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
        train_and_save(comm, directory.path(), kSteps, dist::local_storage());
      });
      EXPECT_EQ(digest_of(directory.path()), expected) << victim << ' ' << kill_at;
      EXPECT_EQ(entries(directory.path()),
                (std::vector<std::string>{"step-00000003", "step-00000004"}));
    }
  }
}

// The system's own limits rather than a hook's.
TEST(CheckpointFault, AFileThatMayNotGrowIsTold) {
  const TemporaryDirectory directory;
  EXPECT_EQ(in_process([&] {
              const auto comm = dist::make_single_rank();
              TrainingRank training(test_model("mlp"), *comm, {});
              const auto checkpoints = training.checkpointer({.directory = directory.path()});
              checkpoints->save({.step = 1});
              checkpoints->wait();
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1000, 1000};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) throw Error("no limit");
              checkpoints->save({.step = 2});
              try {
                checkpoints->wait();
                throw Error("the save went well");
              } catch (const dist::CheckpointError& error) {
                const std::string text = error.what();
                if (text.find("1000 of ") == std::string::npos ||
                    text.find("File too large") == std::string::npos)
                  throw Error("another text: " + text);
              }
            }),
            0);
  EXPECT_EQ(entries(directory.path()), std::vector<std::string>{"step-00000001"});
}

TEST(CheckpointFault, AFullAndAReadOnlyFileSystemAreTold) {
  const TemporaryDirectory directory;
  constexpr int kNotPermitted = 77;
  const int code = in_process([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("weft-test", directory.path().c_str(), "tmpfs", 0, "size=32k") != 0)
      _exit(kNotPermitted);
    const auto comm = dist::make_single_rank();
    TrainingRank training(test_model("mlp"), *comm, {});
    const auto checkpoints = training.checkpointer(
        {.directory = directory.path(), .keep = {.last = 0}, .asynchronous = false});
    const auto expect = [&](int64_t step, const std::string& reason) {
      try {
        checkpoints->save({.step = step});
      } catch (const dist::CheckpointError& error) {
        if (std::string(error.what()).find(reason) == std::string::npos)
          throw Error(std::string("another text: ") + error.what());
        return;
      }
      throw Error("the save went well");
    };
    checkpoints->save({.step = 1});
    int64_t step = 2;
    try {
      for (; step < 20; ++step)
        checkpoints->save({.step = step});
    } catch (const dist::CheckpointError&) {
    }
    expect(step, "No space left on device");
    const auto whole = checkpoints->resume();
    if (!whole || whole->progress.step != step - 1) throw Error("the last good one is gone");
    if (mount(nullptr, directory.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
      throw Error("no remount");
    expect(step, "Read-only file system");
    if (checkpoints->resume()->progress.step != step - 1) throw Error("the last good one is gone");
  });
  if (code == kNotPermitted) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace weft::test
