// Sessions on threads: reports that some ranks make and others do not, stopping together, the log
// of steps, and the folder of a run.
#include "core/error.h"
#include "dist/detail/run_folder.h"
#include "dist/detail/session_state.h"
#include "dist/thread_ranks.h"
#include "dist/trainer.h"
#include "tests/support/parallel_models.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace weft::test {
namespace {

using dist::Communicator;
using dist::Session;
using dist::detail::RunBoard;
using dist::detail::RunFolder;
using dist::detail::StepLog;
using dist::detail::StopReason;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class Sessions : public testing::Test {
 protected:
  // What each rank's body throws, "" if nothing.
  std::vector<std::string> on_ranks(int ranks, const std::function<void(Session&)>& body,
                                    double timeout = 20) {
    RunBoard board(ranks);
    std::vector<std::string> thrown(static_cast<size_t>(ranks));
    try {
      dist::run_thread_ranks(ranks,
                             [&](Communicator& comm) {
                               Session::Setup setup;
                               setup.comm = &comm;
                               setup.train = &train_;
                               setup.scaling = &scaling_;
                               setup.run = &run_;
                               setup.directory = folder_;
                               setup.board = &board;
                               setup.supervised = true;
                               try {
                                 Session session(std::move(setup));
                                 body(session);
                               } catch (const std::exception& error) {
                                 thrown[static_cast<size_t>(comm.rank())] = error.what();
                                 throw;
                               }
                             },
                             {.communicator = {.timeout_seconds = timeout}});
    } catch (const std::exception&) {
    }
    return thrown;
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
  dist::TrainConfig train_;
  dist::ScalingConfig scaling_;
  dist::RunConfig run_;
};

TEST_F(Sessions, ReportsAreTheSameOnAllRanks) {
  const auto thrown = on_ranks(3, [](Session& session) {
    session.report({{"loss", 0.5 + session.rank()}, {"accuracy", 0.25}});
  });
  EXPECT_THAT(thrown, Each(std::string()));
  EXPECT_EQ(read_file(folder_ + "/reports.jsonl"),
            "{\"step\":0,\"attempt\":1,\"checkpoint\":\"\",\"metrics\":{\"loss\":0.5,"
            "\"accuracy\":0.25}}\n");
}

TEST_F(Sessions, ReportsThatDifferAreNamed) {
  const auto thrown = on_ranks(3, [](Session& session) {
    session.begin_step(4);
    session.report({{session.rank() == 2 ? "lost" : "loss", 1.0}});
  });
  EXPECT_THAT(thrown, Each(std::string("[report] expected the same report of all 3 ranks, got on "
                                       "rank 0: step 4, without a checkpoint, loss; on rank 2: "
                                       "step 4, without a checkpoint, lost")));
}

TEST_F(Sessions, AReportThatOthersDoNotMakeNamesBoth) {
  // The others are at their gradients meanwhile, or have ended, or are at something long.
  const auto elsewhere = on_ranks(3, [](Session& session) {
    if (session.rank() == 0) return session.report({{"loss", 1.0}});
    float gradient = 1;
    session.comm().all_reduce({&gradient, 1, f32}, dist::ReduceOp::sum, {.unit = "bucket"});
  });
  EXPECT_THAT(elsewhere, Each(AllOf(HasSubstr("unit 'report'"), HasSubstr("all_reduce"),
                                    HasSubstr("unit 'bucket'"))));
  const auto ended = on_ranks(3, [](Session& session) {
    if (session.rank() == 0) session.report({{"loss", 1.0}});
  });
  EXPECT_THAT(ended[0], AllOf(HasSubstr("unit 'report'"), HasSubstr("rank 1"), HasSubstr("left")));
  const auto late = on_ranks(
      2,
      [](Session& session) {
        if (session.rank() == 0) return session.report({{"loss", 1.0}});
        std::this_thread::sleep_for(std::chrono::seconds(1));
        session.comm().barrier();
      },
      0.2);
  EXPECT_THAT(late[0],
              AllOf(HasSubstr("unit 'report'"), HasSubstr("rank 1: it did not come within 0.")));
}

TEST_F(Sessions, AllRanksStopAfterTheSameStep) {
  run_.checkpoint.every = 1000;
  for (int round = 0; round < 20; ++round) {
    std::array<std::atomic<int64_t>, 3> stopped{};
    RunBoard* shared = nullptr;
    RunBoard board(3);
    shared = &board;
    std::atomic<bool> over{false};
    std::thread asks([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      shared->request_stop(StopReason::preempted);
    });
    dist::run_thread_ranks(3, [&](Communicator& comm) {
      for (int64_t step = 1;; ++step) {
        comm.barrier();
        if (!board.stops_after(step)) continue;
        stopped[static_cast<size_t>(comm.rank())] = step;
        return;
      }
    });
    over = true;
    asks.join();
    EXPECT_GT(stopped[0], 0);
    EXPECT_EQ(stopped[0], stopped[1]);
    EXPECT_EQ(stopped[0], stopped[2]);
  }
}

TEST_F(Sessions, FaultsStrikeInPhasesAndCollectives) {
  run_.inject = "throw:phase=communication,step=2,rank=1,call=2";
  std::array<std::atomic<int>, 2> calls{};
  const auto thrown = on_ranks(2, [&](Session& session) {
    for (int64_t step = 1; step <= 3; ++step) {
      session.begin_step(step);
      for (int i = 0; i < 3; ++i) {
        session.comm().barrier();
        ++calls[static_cast<size_t>(session.rank())];
      }
    }
  });
  EXPECT_EQ(thrown[1],
            "[inject] expected no fault, got a throw in communication of step 2 on rank 1");
  EXPECT_EQ(calls[1], 4);  // three in step 1, one in step 2
  EXPECT_THAT(thrown[0], HasSubstr("rank 1"));
}

TEST_F(Sessions, ADatasetShardIsEveryRowOnce) {
  std::mutex mutex;
  std::vector<int> seen(24, 0);
  const auto thrown = on_ranks(3, [&](Session& session) {
    const auto model = test_model("mlp").make();
    dist::Parallel parallel(*model, session.comm(), {.strategy = "zero2", .logical_shards = 8});
    const std::lock_guard lock(mutex);
    for (const auto& [first, count] : session.dataset_shard(parallel, 24)) {
      for (int64_t row = first; row < first + count; ++row)
        ++seen.at(static_cast<size_t>(row));
    }
  });
  EXPECT_THAT(thrown, Each(std::string()));
  EXPECT_THAT(seen, Each(1));
}

TEST_F(Sessions, AStepLogIsCutBack) {
  const std::string path = folder_ + "/log.jsonl";
  {
    StepLog log(path);
    for (int step = 1; step <= 5; ++step)
      log.add("{\"step\":" + std::to_string(step) + ",\"loss_bits\":\"0000000" +
              std::to_string(step) + "\"}");
  }
  std::ofstream(path, std::ios::app) << "{\"step\":6,\"loss";  // killed in the midst of it
  EXPECT_EQ(dist::detail::member_of_line(dist::detail::line_after(path, 3), "loss_bits"),
            "00000004");
  EXPECT_EQ(dist::detail::line_after(path, 5), "");
  {
    StepLog log(path, 3);
    EXPECT_EQ(dist::detail::step_of_line(log.kept()), 3);
    EXPECT_EQ(dist::detail::line_after(path, 3), "");
    log.add("{\"step\":4}");
  }
  EXPECT_EQ(column(path, "step"), (std::vector<std::string>{"1", "2", "3", "4"}));
  {
    StepLog log(path, 9);  // nothing to cut
    EXPECT_EQ(dist::detail::step_of_line(log.kept()), 4);
  }
  EXPECT_EQ(column(path, "step").size(), 4U);
  std::ofstream(path, std::ios::app) << "{\"st";
  StepLog log(path, 9);
  EXPECT_EQ(column(path, "step").size(), 4U);
}

TEST_F(Sessions, ARunFolderIsLockedAndClearsWhatIsItsOwn) {
  const std::string run = folder_ + "/run";
  RunFolder folder(run);
  try {
    RunFolder second(run);
    ADD_FAILURE() << "locked twice";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in which one is at work"));
  }
  EXPECT_EQ(folder.last_attempt(), 0);
  folder.begin_attempt(1);
  folder.write_attempt(1, "{\"attempt\":1,\"ranks\":4,\"ending\":\"failed\"}\n");
  EXPECT_FALSE(folder.finished());
  folder.begin_attempt(2);
  folder.write_attempt(2, "{\"attempt\":2,\"ranks\":2,\"ending\":\"finished\"}\n");
  EXPECT_EQ(folder.last_attempt(), 2);
  EXPECT_TRUE(folder.finished());
  std::ofstream(run + "/logs/rank-0.log") << "line\n";
  EXPECT_EQ(read_file(run + "/attempts/2/logs/rank-0.log"), "line\n");

  std::filesystem::create_directories(run + "/checkpoints/step-00000004");
  EXPECT_TRUE(folder.has_checkpoints());
  for (const char* foreign : {"checkpoints/notes", "attempts/notes", "notes"})
    std::ofstream(run + "/" + foreign) << "mine";
  folder.clear();
  EXPECT_FALSE(folder.has_checkpoints());
  EXPECT_EQ(folder.last_attempt(), 0);
  for (const char* foreign : {"checkpoints/notes", "attempts/notes", "notes"})
    EXPECT_EQ(read_file(run + "/" + foreign), "mine") << foreign;

  EXPECT_FALSE(dist::detail::read_places(run));
  dist::detail::write_places(run, 3);
  EXPECT_EQ(dist::detail::read_places(run), 3);
  std::ofstream(run + "/places") << "three\n";
  EXPECT_THROW(dist::detail::read_places(run), Error);
}

TEST_F(Sessions, TrainConfigsAreAskedByNameAndKind) {
  const dist::TrainConfig config{
      .values = {{"lr", 0.5}, {"epochs", int64_t{3}}, {"model", std::string("mlp")}}};
  EXPECT_EQ(config.number("lr"), 0.5);
  EXPECT_EQ(config.number("epochs"), 3);
  EXPECT_EQ(config.integer("epochs"), 3);
  EXPECT_EQ(config.text("model"), "mlp");
  EXPECT_THROW(config.integer("lr"), Error);
  EXPECT_THROW(config.number("model"), Error);
  EXPECT_THROW(config.text("none"), Error);
}

}  // namespace
}  // namespace weft::test
