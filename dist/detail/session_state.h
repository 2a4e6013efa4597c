// What a Session holds.
#pragma once

#include "dist/detail/faulty_communicator.h"
#include "dist/detail/file_descriptor.h"
#include "dist/detail/first_loss.h"
#include "dist/detail/run_board.h"
#include "dist/detail/step_log.h"
#include "dist/detail/step_watch.h"
#include "dist/session.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace weft::dist {

// How a rank takes part in an attempt. All that is pointed to outlives the Session.
struct Session::Setup {
  Communicator* comm = nullptr;
  const TrainConfig* train = nullptr;
  const ScalingConfig* scaling = nullptr;
  const RunConfig* run = nullptr;
  std::string directory = {};
  int64_t attempt = 1;
  std::string resume = "none";  // of this attempt
  // Shared with the supervisor where there is one; else this rank's own, of one rank.
  detail::RunBoard* board = nullptr;
  bool supervised = false;
  // Reading it tells of a SIGTERM (a signalfd); -1: nobody listens.
  int signals = -1;
};

namespace detail {

// Also held by the storage hook, which may outlive the Session in a Checkpointer.
struct SessionSigns {
  FaultPoint point;
  std::atomic<int64_t> saving{0};  // the step that a save under way is of
  std::atomic<Phase> phase{Phase::data};
  RunBoard* board = nullptr;
  int slot = 0;

  void beat() const { board->beat(slot, phase.load(std::memory_order_relaxed)); }
};

}  // namespace detail

struct Session::State {
  explicit State(Setup given);

  bool first() const { return setup.comm->rank() == 0; }
  std::string path(const char* name) const { return setup.directory + "/" + name; }
  void charge(Phase phase);
  void hold(const StepRecord& record);
  bool stops(int64_t step);
  void watch_itself();
  void check_report(const Metrics& metrics, bool saves);
  void write_report(const Metrics& metrics, const std::string& checkpoint);

  Setup setup;
  std::shared_ptr<detail::SessionSigns> signs;
  std::unique_ptr<Communicator> faulty;  // around setup.comm, if faults strike there
  Communicator& comm;
  StepClock clock;
  Function<void(const char*, double, double)> spans;
  double waited = 0;  // for other ranks, when the step began
  double looked = 0;  // at this process's memory
  int64_t step = 0;
  bool stopped = false;
  double seconds_before = 0;
  std::optional<detail::FirstLoss> first_loss;  // rank 0, until its first step is done
  std::unique_ptr<detail::StepLog> log;         // rank 0: metrics.jsonl
  std::unique_ptr<detail::StepLog> reports;     // rank 0: reports.jsonl
  std::optional<detail::StepWatch> watch;       // of itself, where nobody else does
};

}  // namespace weft::dist
