// Starts the ranks of a program and stays with them until all have ended.
//
// Each rank is a process, the leader of a process group of its own. It finds out who it is from
// WEFT_RANK, WEFT_WORLD_SIZE, WEFT_LOCAL_RANK, WEFT_LOCAL_WORLD_SIZE, WEFT_MASTER_ADDR,
// WEFT_MASTER_PORT and WEFT_JOB (dist/environment.h) and, for programs that know nothing of Weft,
// from the same names without WEFT_. OMP_NUM_THREADS, where it is not set, becomes the rank's
// host's processors divided by that host's ranks; where it is, ranks on other hosts get it too.
// WEFT_LOG is the path of the rank's log, and WEFT_TERMINAL is set for rank 0 if what it writes
// ends up on a terminal.
//
// What rank 0 writes is shown; what any rank writes goes to its log. When a rank fails, the last
// lines of the first one that did are shown, the others have a moment to end by themselves, and
// then are ended: SIGTERM, and after the grace SIGKILL, always to the whole group. SIGINT, SIGTERM,
// SIGHUP and SIGQUIT are passed on to the ranks and end the launch in the same way; a second one
// ends the grace; SIGTSTP stops and SIGCONT continues the ranks. Nothing outlives the launch, and
// if the launcher is itself killed, nothing outlives it either.
//
// On other hosts ranks are started through ssh, which must need no password there, in the same
// directory; the ranks there end when the connection does. See Host.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::dist {

// "localhost" is this host and needs no ssh; any other name must mean the same host to all ranks.
struct Host {
  std::string name = "localhost";
  int slots = 1;  // ranks it takes
};
// "a,b:4": names with their slots, 1 by default. Throws Error.
std::vector<Host> parse_hosts(const std::string& list);

// Stands beside a launch whose ranks are on this host, and looks after them from time to time.
class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  // Seconds between looks.
  virtual double interval() const = 0;
  // `processes` are the ranks', -1 where one has ended. May send signals to them. Returns lines to
  // be shown as the launcher's. Must not throw.
  virtual std::vector<std::string> look(std::span<const pid_t> processes) = 0;
};

struct LaunchOptions {
  // The program, looked for on PATH if it holds no '/', and its arguments.
  std::vector<std::string> command;
  int ranks = 1;
  // Ranks fill the hosts in order. Empty: all ranks on this host.
  std::vector<Host> hosts;
  // Program and arguments that come before a host's name: split at spaces.
  std::string ssh = "ssh -o BatchMode=yes";
  // Where rank 0 can be met by the others; empty: the first host. A port of 0: a free one.
  std::string master_address;
  int master_port = 0;
  // The folder of rank-N.log; logs of an earlier launch in it are removed. Empty: a temporary
  // folder that is removed again unless a rank fails.
  std::string log_directory;
  // Shows all ranks, each line marked "[rank] ", not rank 0 alone.
  bool show_all = false;
  // How messages of the launcher begin.
  std::string name = "weft run";
  double time_limit_seconds = 0;  // for the whole launch, 0: none
  double verdict_seconds = 2;     // for the others to end by themselves after one has failed
  double grace_seconds = 5;       // from SIGTERM to SIGKILL
  // After a failure those that have not ended by themselves get SIGKILL at once.
  bool no_grace_after_failure = false;
  // More for the environment of local ranks. Open descriptors without FD_CLOEXEC are theirs, too.
  std::vector<std::pair<std::string, std::string>> variables = {};
  LaunchWatch* watch = nullptr;  // not owned
  int output = 1;                // descriptors for what is shown
  int errors = 2;
};

inline constexpr int kTimeLimitCode = 124;

struct LaunchReport {
  int code = 0;          // what launch() returns
  int failed_rank = -1;  // the first that failed
  int signal = 0;        // that ended the launch
};

// Returns 0 if all ranks have returned 0; else the exit code of the first rank that failed, 128 + N
// if signal N ended it; 128 + N if signal N ended the launch; kTimeLimitCode after the time limit.
// Throws Error if the ranks cannot be started or their output cannot be kept; no rank is left then.
// To be called from a program's only thread.
int launch(const LaunchOptions& options);
// The same, and how it came to that.
LaunchReport launch_ranks(const LaunchOptions& options);

}  // namespace weft::dist
