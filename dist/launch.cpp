// The supervisor: one thread, one poll over the ranks' endings, their output, and signals.
#include "dist/launch.h"

#include "core/error.h"
#include "dist/detail/launch_plan.h"
#include "dist/detail/rank_output.h"
#include "dist/detail/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

namespace weft::dist {
namespace {

using detail::Ending;
using detail::FileDescriptor;
using detail::Outlet;
using detail::Pipe;

constexpr int kLastLines = 20;
// Between looks at groups whose leaders have ended: members that are not our children send no word.
constexpr double kGroupLookSeconds = 0.02;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// Signals of this process arrive on a descriptor, writing where nobody reads is an error code, and
// children that have ended stay until they are asked about, for as long as this lives.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&wanted, number);  // nohup stays nohup
    }
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &pipe_before_);
    // Whoever started this process may have it ignore SIGCHLD, and the kernel then forgets children
    // at once.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &usual, &child_before_);
  }
  ~Signals() {
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigaction(SIGPIPE, &pipe_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_.get(); }
  const sigset_t& before() const { return before_; }
  int next() {
    signalfd_siginfo info{};
    return read(descriptor_.get(), &info, sizeof info) == sizeof info
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
  FileDescriptor descriptor_;
};

struct Rank {
  detail::RankLog log;
  detail::LineMarker marker;
  bool remote = false;
  pid_t process = -1;
  FileDescriptor pidfd = {};
  FileDescriptor input = {};  // of a remote rank: closing it ends the rank
  // Standard output, and standard error where it is shown apart.
  std::array<FileDescriptor, 2> streams = {};
  std::optional<Ending> ending = {};
};

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, const std::string& logs)
      : options_(options), logs_(logs), output_(options.output), errors_(options.errors) {
    const std::vector<detail::RankPlan> plans = detail::plan_launch(options, logs);
    began_ = now_seconds();
    try {
      for (const detail::RankPlan& plan : plans)
        start(plan);
    } catch (...) {
      end_now();
      throw;
    }
  }
  ~Supervisor() { end_now(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  LaunchReport run() {
    if (options_.time_limit_seconds > 0) deadline_ = began_ + options_.time_limit_seconds;
    while (!all_ended())
      turn();
    end_leftovers();
    for (Rank& rank : ranks_) {
      output_.add(rank.marker.rest());
      rank.log.flush();
    }
    phase_ = Phase::showing;
    while (output_.waiting() || errors_.waiting())
      turn();
    return report_;
  }

 private:
  enum class Phase { running, verdicts, ending, killed, showing };

  void start(const detail::RankPlan& plan) {
    const int number = static_cast<int>(ranks_.size());
    const std::string path = detail::log_path(logs_, number);
    Rank rank{.log = detail::RankLog(path),
              .marker = detail::LineMarker("[" + std::to_string(number) + "] "),
              .remote = plan.remote};
    // Two streams where both are shown apart; else one, which keeps their order.
    Pipe output = detail::make_pipe();
    Pipe errors;
    const bool apart = number == 0 && !options_.show_all;
    if (apart) errors = detail::make_pipe();
    Pipe input;
    const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (plan.remote) input = detail::make_pipe();
    // A rank that reads from the terminal would be stopped, as it is in the background.
    const bool reads = number == 0 && !plan.remote && isatty(STDIN_FILENO) == 0 &&
                       fcntl(STDIN_FILENO, F_GETFD) >= 0;
    int from = nothing.get();
    if (plan.remote) from = input.read.get();
    if (reads) from = STDIN_FILENO;
    rank.process =
        detail::start_process({.command = plan.command,
                               .environment = plan.environment,
                               .input = from,
                               .output = output.write.get(),
                               .errors = apart ? errors.write.get() : output.write.get()},
                              guardian_, signals_.before());
    rank.input = std::move(input.write);
    rank.streams = {std::move(output.read), std::move(errors.read)};
    for (const FileDescriptor& stream : rank.streams) {
      if (stream.valid()) fcntl(stream.get(), F_SETFL, O_NONBLOCK);
    }
    ranks_.push_back(std::move(rank));
    Rank& started = ranks_.back();
    started.pidfd = FileDescriptor(detail::open_process(started.process));
    WEFT_CHECK(started.pidfd.valid(), "launch", "expected a process descriptor, got ",
               std::strerror(errno));
  }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ending; });
  }

  // Waits for something to happen, at most `longest` seconds (none: as long as it takes), and deals
  // with it.
  void turn(std::optional<double> longest = {}) {
    std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
    for (const Outlet* outlet : {&output_, &errors_})
      polled.push_back({outlet->waiting() ? outlet->descriptor() : -1, POLLOUT, 0});
    const bool held = output_.full() || errors_.full();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& rank = ranks_[i];
      polled.push_back({rank.ending ? -1 : rank.pidfd.get(), POLLIN, 0});
      for (const FileDescriptor& stream : rank.streams)
        polled.push_back({held && shown(i) ? -1 : stream.get(), POLLIN, 0});
    }
    if (deadline_) {
      const double left = std::max(0.0, *deadline_ - now_seconds());
      longest = longest ? std::min(*longest, left) : left;
    }
    const bool watched = options_.watch && phase_ == Phase::running;
    if (watched) {
      const double left = std::max(0.0, looked_ + options_.watch->interval() - now_seconds());
      longest = longest ? std::min(*longest, left) : left;
    }
    const int milliseconds = longest ? static_cast<int>(std::min(*longest, 1e6) * 1e3) + 1 : -1;
    if (poll(polled.data(), polled.size(), milliseconds) < 0) {
      WEFT_CHECK(errno == EINTR, "launch", "expected to wait for ranks, got ",
                 std::strerror(errno));
      return;
    }
    if (polled[0].revents) on_signal(signals_.next());
    if (polled[1].revents) output_.write_some();
    if (polled[2].revents) errors_.write_some();
    std::vector<size_t> failed;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const pollfd* of_rank = &polled[3 + 3 * i];
      for (size_t s = 0; s < 2; ++s) {
        if (of_rank[1 + s].revents) take_some(i, s);
      }
      if (!of_rank[0].revents) continue;
      ranks_[i].ending = detail::ending_of(ranks_[i].pidfd.get());
      ranks_[i].input = FileDescriptor();
      if (ranks_[i].ending->failed()) failed.push_back(i);
    }
    if (!failed.empty()) on_failure(failed);
    if (watched && now_seconds() >= looked_ + options_.watch->interval()) look();
    if (deadline_ && now_seconds() >= *deadline_) on_deadline();
  }

  void look() {
    std::vector<pid_t> processes;
    for (const Rank& rank : ranks_)
      processes.push_back(rank.ending ? -1 : rank.process);
    for (const std::string& line : options_.watch->look(processes))
      say(line);
    looked_ = now_seconds();
  }

  bool shown(size_t rank) const { return rank == 0 || options_.show_all; }

  // Returns whether there may be more.
  bool take_some(size_t number, size_t stream) {
    Rank& rank = ranks_[number];
    std::array<char, 64 * 1024> bytes;
    const ssize_t got = read(rank.streams[stream].get(), bytes.data(), bytes.size());
    if (got < 0) return errno == EINTR;
    if (got == 0) {
      rank.streams[stream] = FileDescriptor();
      return false;
    }
    const std::string_view text(bytes.data(), static_cast<size_t>(got));
    rank.log.add(stream, text);
    if (options_.show_all) {
      output_.add(rank.marker.add(text));
    } else if (number == 0) {
      (stream == 0 ? output_ : errors_).add(text);
    }
    return true;
  }
  // What a rank that has ended wrote before.
  void take_all(size_t number) {
    for (size_t stream = 0; stream < 2; ++stream) {
      while (ranks_[number].streams[stream].valid() && take_some(number, stream)) {
      }
    }
  }

  void say(const std::string& text) { errors_.add(options_.name + ": " + text + "\n"); }

  void on_failure(const std::vector<size_t>& failed) {
    if (phase_ != Phase::running) return;
    // Of several seen at once, one that a signal ended is not a consequence of the others.
    size_t first = failed[0];
    for (const size_t candidate : failed) {
      if (ranks_[candidate].ending->signal && !ranks_[first].ending->signal) first = candidate;
    }
    const Ending ending = *ranks_[first].ending;
    report_.code = ending.exit_code();
    report_.failed_rank = static_cast<int>(first);
    take_all(first);
    ranks_[first].log.flush();
    std::string text = "rank " + std::to_string(first) + " of " + std::to_string(ranks_.size());
    text += ending.signal ? " was ended by " + signal_name(ending.signal)
                          : " ended with exit code " + std::to_string(ending.code);
    const std::string lines =
        shown(first) ? std::string() : ranks_[first].log.last_lines(kLastLines);
    say(text + (lines.empty() ? "" : "; its last lines:"));
    if (!lines.empty()) {
      detail::LineMarker marker("  | ");
      errors_.add(marker.add(lines));
    }
    say("logs: " + logs_ + "/rank-N.log");
    phase_ = Phase::verdicts;
    deadline_ = now_seconds() + options_.verdict_seconds;
  }

  void on_signal(int number) {
    if (number == 0) return;
    if (phase_ == Phase::showing) {  // to somebody who does not read
      output_.drop();
      errors_.drop();
      return;
    }
    if (number == SIGTSTP) {
      const double stopped = now_seconds();
      send(SIGSTOP);
      raise(SIGSTOP);
      send(SIGCONT);  // from here on somebody has continued us
      if (deadline_) *deadline_ += now_seconds() - stopped;
      return;
    }
    if (signalled_) {
      send(SIGKILL);
      phase_ = Phase::killed;
      return;
    }
    signalled_ = true;
    if (phase_ == Phase::running) {
      report_.code = 128 + number;
      report_.signal = number;
    }
    say("ending the ranks after " + signal_name(number));
    begin_ending(number);
  }

  void on_deadline() {
    if (phase_ == Phase::running) {
      char text[64];
      std::snprintf(text, sizeof text, "ending the ranks after %g seconds",
                    options_.time_limit_seconds);
      say(text);
      report_.code = kTimeLimitCode;
    }
    const bool gentle = phase_ == Phase::verdicts && !options_.no_grace_after_failure;
    if (phase_ == Phase::running || gentle) {
      begin_ending(SIGTERM);
    } else {
      send(SIGKILL);
      phase_ = Phase::killed;
      deadline_.reset();
    }
  }

  void begin_ending(int number) {
    send(number);
    send(SIGCONT);  // a stopped process takes no other signal than SIGKILL
    phase_ = Phase::ending;
    deadline_ = now_seconds() + options_.grace_seconds;
  }

  // To all groups. A remote rank's signal is the end of its input: ssh passes none on.
  void send(int number) {
    for (Rank& rank : ranks_) {
      const bool ends = number != SIGSTOP && number != SIGCONT;
      if (rank.remote && ends) rank.input = FileDescriptor();
      if (!rank.remote || number == SIGKILL) kill(-rank.process, number);
    }
  }

  std::vector<pid_t> groups() const {
    std::vector<pid_t> result;
    for (const Rank& rank : ranks_)
      result.push_back(rank.process);
    std::sort(result.begin(), result.end());
    return result;
  }

  // All ranks have ended; what they have started and left in their groups ends now.
  void end_leftovers() {
    const std::vector<pid_t> all = groups();
    // Also after a SIGINT: shells have what runs in the background ignore that.
    if (!detail::living_groups(all).empty() && phase_ != Phase::killed) begin_ending(SIGTERM);
    while (!detail::living_groups(all).empty())
      turn(kGroupLookSeconds);
    deadline_.reset();
    for (size_t i = 0; i < ranks_.size(); ++i)
      take_all(i);
  }

  // However it came to this, nobody is left behind.
  void end_now() {
    for (Rank& rank : ranks_) {
      kill(-rank.process, SIGKILL);
      rank.input = FileDescriptor();
      while (waitpid(rank.process, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    ranks_.clear();
  }

  LaunchOptions options_;
  std::string logs_;
  Outlet output_;
  Outlet errors_;
  Signals signals_;
  detail::Guardian guardian_;
  std::vector<Rank> ranks_;
  Phase phase_ = Phase::running;
  double began_ = 0;
  std::optional<double> deadline_;  // of the phase
  bool signalled_ = false;
  LaunchReport report_;
  double looked_ = 0;
};

// The folder of the logs: as asked for, without the logs of an earlier launch, or a temporary one.
class LogDirectory {
 public:
  explicit LogDirectory(const std::string& path) : temporary_(path.empty()) {
    std::error_code error;
    if (temporary_) {
      std::string name = std::filesystem::temp_directory_path(error).string() + "/weft-run-XXXXXX";
      WEFT_CHECK(mkdtemp(name.data()), "launch", "expected to make a folder for logs, got ", name,
                 ": ", std::strerror(errno));
      path_ = name;
      return;
    }
    path_ = std::filesystem::absolute(path, error).string();
    std::filesystem::create_directories(path_, error);
    WEFT_CHECK(!error, "launch", "expected to make the folder for logs, got ", path_, ": ",
               error.message());
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      int rank = 0;
      int length = 0;
      if (std::sscanf(name.c_str(), "rank-%d.log%n", &rank, &length) == 1 &&
          length == static_cast<int>(name.size()))
        std::filesystem::remove(entry.path(), error);
    }
  }
  const std::string& path() const { return path_; }
  void remove_if_temporary() const {
    std::error_code error;
    if (temporary_) std::filesystem::remove_all(path_, error);
  }

 private:
  bool temporary_;
  std::string path_;
};

}  // namespace

LaunchReport launch_ranks(const LaunchOptions& options) {
  const LogDirectory logs(options.log_directory);
  LaunchReport report;
  try {
    report = Supervisor(options, logs.path()).run();
  } catch (...) {
    logs.remove_if_temporary();
    throw;
  }
  if (report.code == 0) logs.remove_if_temporary();
  return report;
}

int launch(const LaunchOptions& options) {
  return launch_ranks(options).code;
}

}  // namespace weft::dist
