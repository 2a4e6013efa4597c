#include "dist/detail/run_watch.h"

#include "core/error.h"

#include <signal.h>

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

// A rank that is slow by nature is not taken for one that stands still: it may take so many times
// as long as it ever has between two signs of life.
constexpr double kTimesLongest = 10;

char state_of(pid_t process) {
  const auto stat = read_file("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  return name_end != std::string::npos && name_end + 2 < stat->size() ? (*stat)[name_end + 2] : 0;
}

}  // namespace

RunWatch::RunWatch(const RunFolder& folder, RunBoard& board, const SupervisorOptions& options)
    : folder_(folder),
      board_(board),
      options_(options),
      steps_(board.ranks(), options.watch),
      beats_(static_cast<size_t>(board.ranks())) {}

std::vector<std::string> RunWatch::look(std::span<const pid_t> processes) {
  std::vector<RankSample> samples;
  for (int r = 0; r < board_.ranks(); ++r)
    samples.push_back(board_.sample(r));
  std::vector<std::string> lines = steps_.add(samples);
  look_at_beats(samples, processes, lines);
  look_at_places(samples, lines);
  return lines;
}

// A rank that stands still stops all others, which wait for it. It is the one that was stopped, or
// else the one that was heard of least lately. What others then do, its end tells the launcher.
void RunWatch::look_at_beats(std::span<const RankSample> samples, std::span<const pid_t> processes,
                             std::vector<std::string>& lines) {
  const double now = awake_.look();
  std::optional<size_t> worst;
  bool worst_stopped = false;
  for (size_t r = 0; r < samples.size(); ++r) {
    Beat& beat = beats_[r];
    if (samples[r].beats != beat.count) {
      if (beat.count > 0) beat.longest = std::max(beat.longest, now - beat.since);
      beat.count = samples[r].beats;
      beat.since = now;
    }
    // Before the first step is done a rank may read data and build models for as long as it likes.
    const bool watched = options_.heartbeat_seconds > 0 && samples[r].step >= 1 &&
                         !samples[r].done && processes[r] > 0;
    if (!watched) continue;
    const double limit = std::max(options_.heartbeat_seconds, kTimesLongest * beat.longest);
    if (now - beat.since < limit) continue;
    const char state = state_of(processes[r]);
    const bool stopped = state == 'T' || state == 't';
    const bool worse = !worst || (stopped && !worst_stopped) ||
                       (stopped == worst_stopped && beat.since < beats_[*worst].since);
    if (!worse) continue;
    worst = r;
    worst_stopped = stopped;
  }
  if (!worst) return;
  const RankSample& sample = samples[*worst];
  lines.push_back(
      concat({"rank ", static_cast<int64_t>(*worst), " has made no progress for ",
              now - beats_[*worst].since, " s, since ", to_string(sample.phase), " after step ",
              sample.step, worst_stopped ? " (it is stopped)" : "", ": ending it"}));
  kill(processes[*worst], SIGKILL);
  beats_[*worst].since = now;  // its end is on its way
}

void RunWatch::look_at_places(std::span<const RankSample> samples,
                              std::vector<std::string>& lines) {
  if (!options_.saves || board_.stop_requested() != StopReason::none) return;
  const bool stepping =
      std::all_of(samples.begin(), samples.end(), [](const RankSample& s) { return s.step >= 1; });
  if (!stepping) return;  // ranks that cannot stop yet
  try {
    const int places = read_places(folder_.path()).value_or(options_.workers);
    const int ranks = ranks_for(options_, places);
    if (ranks == board_.ranks()) return;
    lines.push_back(
        concat({"places: ", places, ", ranks: ", board_.ranks(), ": saving, then ",
                ranks > 0 ? concat({"going on with ", ranks, " ranks"}) : std::string("ending")}));
    board_.request_stop(StopReason::places);
  } catch (const Error& error) {
    if (complaint_ != error.what()) lines.push_back(complaint_ = error.what());
  }
}

}  // namespace weft::dist::detail
