// Jobs that are stopped as a whole and go on: time in which nobody ran counts against nobody.
#include "dist/detail/awake_time.h"
#include "dist/detail/run_watch.h"
#include "dist/shm.h"
#include "dist/tcp.h"
#include "tests/support/processes.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace weft::dist {
namespace {

using test::comes;

void pass(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(AwakeTime, CountsWhatLiesBetweenLooksButNoMoreThanALittle) {
  detail::AwakeTime awake(100);
  EXPECT_EQ(awake.look(100.125), 0.125);
  EXPECT_EQ(awake.look(100.1875), 0.1875);
  EXPECT_EQ(awake.look(4100.1875), 0.1875 + detail::AwakeTime::kLongestGap);
  EXPECT_EQ(awake.look(4100.25), 0.25 + detail::AwakeTime::kLongestGap);
}

// Rank 0 waits for rank 1 when both are stopped, for longer than either would wait.
void expect_pause_is_survived(
    const std::function<std::unique_ptr<Communicator>(int rank, double timeout)>& join) {
  constexpr double kTimeout = 1.5;
  const test::TemporaryDirectory folder;
  const auto there = [&](const char* name) {
    return std::filesystem::exists(folder.path() + "/" + name);
  };
  const auto outcomes = test::run_processes(2,
                                            [&](int rank) {
                                              const auto comm = join(rank, kTimeout);
                                              comm->barrier();
                                              if (rank == 1) {
                                                std::ofstream(folder.path() + "/apart");
                                                while (!there("continued"))
                                                  usleep(1000);
                                                pass(0.1);
                                              }
                                              comm->barrier();
                                              return std::string();
                                            },
                                            {.meanwhile =
                                                 [&](const std::vector<pid_t>& pids) {
                                                   comes([&] { return there("apart"); });
                                                   pass(0.1);
                                                   for (const pid_t pid : pids)
                                                     kill(pid, SIGSTOP);
                                                   pass(kTimeout + 0.2);
                                                   std::ofstream(folder.path() + "/continued");
                                                   for (const pid_t pid : pids)
                                                     kill(pid, SIGCONT);
                                                 },
                                             .seconds = 20});
  for (const test::Outcome& outcome : outcomes)
    EXPECT_EQ(outcome.code, test::kReturned) << outcome.text;
}

TEST(PausedJob, OfSharedMemoryGoesOn) {
  const std::string job = test::fresh_job_name();
  expect_pause_is_survived([&](int rank, double timeout) {
    return join_shm(job, rank, 2, {.timeout_seconds = timeout});
  });
}

TEST(PausedJob, OverTheNetworkGoesOn) {
  const std::string job = test::fresh_job_name();
  const int port = free_port("127.0.0.1");
  expect_pause_is_survived([&](int rank, double timeout) {
    return join_tcp({.job = job, .address = "127.0.0.1", .port = port, .rank = rank, .size = 2},
                    {.timeout_seconds = timeout});
  });
}

// The supervisor looks first when it goes on, before any rank has had a chance to get on.
TEST(PausedJob, LosesNoRankToTheSupervisor) {
  const test::TemporaryDirectory temporary;
  const detail::RunFolder folder(temporary.path());
  detail::RunBoard board(1);
  detail::SupervisorOptions options;
  options.heartbeat_seconds = 0.6;
  detail::RunWatch watch(folder, board, options);
  const pid_t rank = fork();
  if (rank == 0) {
    for (;;)
      pause();
  }
  board.completed(0, 1, {}, 0);
  EXPECT_THAT(watch.look({&rank, 1}), testing::IsEmpty());
  pass(0.8);  // without a look
  EXPECT_THAT(watch.look({&rank, 1}), testing::IsEmpty());
  // A rank that stands still while the supervisor looks on is found all the same.
  std::vector<std::string> lines;
  EXPECT_TRUE(comes([&] {
    lines = watch.look({&rank, 1});
    return !lines.empty();
  }));
  EXPECT_THAT(lines,
              testing::ElementsAre(testing::HasSubstr("rank 0 has made no progress for 0.")));
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace weft::dist
