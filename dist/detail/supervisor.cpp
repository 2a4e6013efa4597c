#include "dist/detail/supervisor.h"

#include "core/error.h"
#include "dist/detail/run_start.h"
#include "dist/detail/run_watch.h"
#include "dist/environment.h"
#include "dist/launch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace weft::dist::detail {
namespace {

constexpr int kUsageCode =
    2;  // of a program that refuses its arguments: again it would do the same

class Supervision {
 public:
  Supervision(const RunFolder& folder, const SupervisorOptions& options)
      : folder_(folder), options_(options), attempt_(folder.last_attempt()) {}

  SupervisorReport run() {
    for (;;) {
      const int places = read_places(folder_.path()).value_or(options_.workers);
      const int ranks = ranks_for(options_, places);
      WEFT_CHECK(ranks > 0, "run", "expected places for at least ", options_.min_workers,
                 " ranks (--min-workers), got ", places, " of ", options_.workers, " in ",
                 folder_.path(), "/places");
      if (const auto report = run_attempt(ranks)) return *report;
    }
  }

 private:
  // Nothing if the run goes on.
  std::optional<SupervisorReport> run_attempt(int ranks) {
    ++attempt_;
    const std::string folder = folder_.begin_attempt(attempt_);
    RunBoard board(ranks);
    RunWatch watch(folder_, board, options_);
    LaunchOptions launch;
    launch.command = options_.command;
    launch.ranks = ranks;
    launch.log_directory = folder + "/logs";
    launch.name = options_.name;
    launch.watch = &watch;
    launch.grace_seconds = options_.grace_seconds;
    launch.verdict_seconds = 1;
    launch.no_grace_after_failure = true;
    launch.variables = {{kAttemptVariable, std::to_string(attempt_)},
                        {kBoardVariable, std::to_string(board.descriptor())},
                        {kResumeVariable, resume()}};
    // Threads are the same in every attempt: what oneDNN computes may depend on them.
    if (!std::getenv("OMP_NUM_THREADS")) {
      const int threads = threads_per_rank(1 << 20, own_processors(), options_.workers);
      launch.variables.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
    }
    note(ranks, "running", {});
    const LaunchReport report = launch_ranks(launch);
    return judge(ranks, board, report);
  }

  std::optional<SupervisorReport> judge(int ranks, const RunBoard& board,
                                        const LaunchReport& report) {
    SupervisorReport result{
        .code = report.code, .signal = report.signal, .attempts = attempt_, .failures = failures_};
    begun_ = begun_ || board.begun();
    bool all_done = true;
    for (int r = 0; r < ranks; ++r)
      all_done = all_done && board.sample(r).done;
    // A signal may come when there is nothing left to end.
    const bool finished =
        report.signal != 0
            ? all_done
            : report.code == 0 && (all_done || board.stop_requested() == StopReason::none);
    if (finished) {
      note(ranks, "finished", {});
      result.code = result.signal = 0;
      return result;
    }
    if (report.signal != 0) {
      note(ranks, "ended by a signal", report);
      return result;
    }
    if (report.code == 0) {
      note(ranks, "places changed", report);
      return std::nullopt;
    }
    note(ranks, "failed", report);
    result.failures = ++failures_;
    if (board.places_lost() > 0) {
      const int left = std::max(0, ranks - board.places_lost());
      write_places(folder_.path(), left);
      say(concat({"places lost: ", board.places_lost(), ", left: ", left}));
    }
    if (report.code == kUsageCode || options_.max_failures == 0) return result;
    if (board.restart_forbidden()) {
      say("it would end the same way again: giving up");
      return result;
    }
    if (failures_ > options_.max_failures) {
      say(concat({"failure ", failures_, " is one more than --max-failures ", options_.max_failures,
                  ": giving up"}));
      return result;
    }
    say(concat({"failure ", failures_, " of at most ", options_.max_failures, next_start()}));
    return std::nullopt;
  }

  // What was asked for, until an attempt has begun there: before that the run may have checkpoints
  // that the user has turned down. Then the run goes on with what it has.
  std::string resume() const {
    return begun_ && folder_.has_checkpoints() ? "auto" : options_.resume;
  }

  std::string next_start() const {
    const std::string from = resume();
    if (from != "none" && from != "auto") return ": going on from " + from;
    return folder_.has_checkpoints() ? ": going on from the newest whole checkpoint"
                                     : ": no checkpoint yet, beginning anew";
  }

  void note(int ranks, const char* ending, const LaunchReport& report) const {
    note_attempt(folder_, attempt_, ranks, ending, report);
  }

  void say(const std::string& text) const {
    std::fprintf(stderr, "%s: %s\n", options_.name.c_str(), text.c_str());
  }

  const RunFolder& folder_;
  const SupervisorOptions& options_;
  int64_t attempt_;
  int failures_ = 0;
  bool begun_ = false;
};

}  // namespace

int ranks_for(const SupervisorOptions& options, int places) {
  for (int ranks = std::min(options.workers, places); ranks >= std::max(1, options.min_workers);
       --ranks) {
    if (!options.fits || options.fits(ranks)) return ranks;
  }
  return 0;
}

SupervisorReport supervise(const RunFolder& folder, const SupervisorOptions& options) {
  return Supervision(folder, options).run();
}

}  // namespace weft::dist::detail
