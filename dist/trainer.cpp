#include "dist/trainer.h"

#include "core/error.h"
#include "core/parallel.h"
#include "dist/detail/run_start.h"
#include "dist/detail/session_state.h"
#include "dist/detail/supervisor.h"
#include "dist/environment.h"
#include "dist/faults.h"
#include "dist/plan.h"
#include "dist/world.h"

#include <signal.h>
#include <sys/signalfd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace weft::dist {
namespace {

using detail::FileDescriptor;
using detail::RunFolder;

// Where there is something to save, SIGTERM is read at the end of a step instead of ending the
// process. Blocked before there are other threads, which so have it blocked, too.
class Preemption {
 public:
  explicit Preemption(bool saves) {
    if (!saves) return;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Preemption() {
    if (descriptor_.valid()) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Preemption(const Preemption&) = delete;
  Preemption& operator=(const Preemption&) = delete;
  int descriptor() const { return descriptor_.get(); }

 private:
  sigset_t before_{};
  FileDescriptor descriptor_;
};

int64_t number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : 0;
}

// One rank of an attempt.
struct RankRun {
  const WorkerFunction& worker;
  const TrainConfig& train;
  const ScalingConfig& scaling;
  const RunConfig& run;
  std::string directory;

  // Runs the worker function as a rank of `comm`; returns whether it was told to stop.
  bool work(Communicator& comm, Session::Setup setup) const {
    setup.comm = &comm;
    setup.train = &train;
    setup.scaling = &scaling;
    setup.run = &run;
    setup.directory = directory;
    const int slot = setup.supervised ? comm.rank() : 0;
    detail::RunBoard& board = *setup.board;
    try {
      Session session(std::move(setup));
      worker(session);
      comm.wait_all();
      if (!session.stopped()) board.done(slot);
      return session.stopped();
    } catch (const CommunicationError&) {
      throw;  // the others know
    } catch (const std::exception& error) {
      comm.abort(error.what());
      throw;
    }
  }
  std::unique_ptr<Communicator> join(const RankEnvironment& environment) const {
    return join_world(environment, {.backend = scaling.backend,
                                    .communicator = {.timeout_seconds = scaling.timeout_seconds}});
  }
};

}  // namespace

Trainer::Trainer(WorkerFunction worker, TrainConfig train, ScalingConfig scaling, RunConfig run)
    : worker_(std::move(worker)),
      train_(std::move(train)),
      scaling_(std::move(scaling)),
      run_(std::move(run)) {
  WEFT_CHECK(static_cast<bool>(worker_), "trainer", "expected a worker function, got none");
  WEFT_CHECK(scaling_.workers >= 1 && scaling_.min_workers >= 0 &&
                 scaling_.min_workers <= scaling_.workers,
             "trainer", "expected at least one worker and min_workers of at most as many, got ",
             scaling_.workers, " and ", scaling_.min_workers);
  WEFT_CHECK(scaling_.device == "cpu", "trainer", "expected the device cpu, got ", scaling_.device);
  plan_named(scaling_.strategy);
  WEFT_CHECK(run_.checkpoint.every >= 0 && run_.failure.max_failures >= 0 &&
                 run_.failure.heartbeat_seconds >= 0 && run_.failure.grace_seconds >= 0,
             "trainer", "expected no negative steps, failures and seconds, got ",
             run_.checkpoint.every, ", ", run_.failure.max_failures, ", ",
             run_.failure.heartbeat_seconds, " and ", run_.failure.grace_seconds);
  parse_faults(run_.inject);
  if (run_.directory.empty()) run_.directory = run_.storage + "/" + run_.name;
  if (scaling_.min_workers == 0) scaling_.min_workers = scaling_.workers;
}

bool Trainer::started_this() {
  return std::getenv(detail::kAttemptVariable) != nullptr;
}

Result Trainer::fit() {
  const bool saves = run_.checkpoint.every > 0;
  const RankEnvironment environment = read_environment();
  if (scaling_.threads > 0) set_num_threads(scaling_.threads);
  const RankRun rank{worker_, train_, scaling_, run_, run_.directory};

  if (started_this()) {
    // A rank that a supervisor has started. It ends here.
    int code = 0;
    try {
      const Preemption preemption(saves);
      detail::RunBoard board =
          detail::RunBoard::adopt(static_cast<int>(number_of(detail::kBoardVariable)));
      const auto comm = rank.join(environment);
      const char* resume = std::getenv(detail::kResumeVariable);
      rank.work(*comm, {.attempt = number_of(detail::kAttemptVariable),
                        .resume = resume ? resume : "none",
                        .board = &board,
                        .supervised = true,
                        .signals = preemption.descriptor()});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", run_.name.c_str(), error.what());
      code = 1;
    }
    std::fflush(nullptr);
    std::exit(code);
  }

  if (environment.launched()) {
    WEFT_CHECK(run_.failure.max_failures == 0, "trainer", "expected max_failures 0 for ranks that ",
               environment.launcher, " has started, whose restarts are its own, got ",
               run_.failure.max_failures);
    const Preemption preemption(saves);
    const auto comm = rank.join(environment);
    // Rank 0 opens the run; the others hear of it, or of what is wrong with it.
    std::optional<RunFolder> folder;
    detail::RunStart start;
    try {
      if (comm->rank() == 0) {
        folder.emplace(run_.directory);
        start = detail::begin_run(*folder, run_);
        start.attempt = folder->last_attempt() + 1;
        folder->begin_attempt(start.attempt);
        detail::note_attempt(*folder, start.attempt, comm->size(), "running", {});
      }
    } catch (const std::exception& error) {
      comm->abort(error.what());
      throw;
    }
    detail::share(start, *comm);
    detail::RunBoard board(1);
    bool stopped = false;
    try {
      stopped = rank.work(*comm, {.attempt = start.attempt,
                                  .resume = start.resume,
                                  .board = &board,
                                  .signals = preemption.descriptor()});
    } catch (...) {
      if (folder) detail::note_attempt(*folder, start.attempt, comm->size(), "failed", {.code = 1});
      throw;
    }
    if (folder)
      detail::note_attempt(*folder, start.attempt, comm->size(),
                           stopped ? "ended by a signal" : "finished", {});
    comm->barrier();  // what rank 0 has written is there for all
    return detail::result_of(run_, stopped ? 128 + SIGTERM : 0, start.attempt, 0);
  }

  RunFolder folder(run_.directory);
  const detail::RunStart start = detail::begin_run(folder, run_);
  if (scaling_.workers > 1 || run_.failure.max_failures > 0) {
    detail::SupervisorOptions options;
    options.command = detail::own_command();
    options.name = run_.name;
    options.workers = scaling_.workers;
    options.min_workers = scaling_.min_workers;
    options.fits = scaling_.fits;
    options.max_failures = run_.failure.max_failures;
    options.saves = saves;
    options.heartbeat_seconds = run_.failure.heartbeat_seconds;
    options.grace_seconds = saves ? run_.failure.grace_seconds : 5;
    options.resume = start.resume;
    const detail::SupervisorReport report = detail::supervise(folder, options);
    return detail::result_of(run_, report.code, report.attempts, report.failures);
  }

  // This process is the only rank.
  const int64_t attempt = folder.last_attempt() + 1;
  const Preemption preemption(saves);
  folder.begin_attempt(attempt);
  detail::note_attempt(folder, attempt, 1, "running", {});
  const auto comm = rank.join(environment);
  detail::RunBoard board(1);
  bool stopped = false;
  try {
    stopped = rank.work(*comm, {.attempt = attempt,
                                .resume = start.resume,
                                .board = &board,
                                .signals = preemption.descriptor()});
  } catch (...) {
    detail::note_attempt(folder, attempt, 1, "failed", {.code = 1, .failed_rank = 0});
    throw;
  }
  detail::note_attempt(folder, attempt, 1, stopped ? "ended by a signal" : "finished", {});
  return detail::result_of(run_, stopped ? 128 + SIGTERM : 0, attempt, 0);
}

}  // namespace weft::dist
