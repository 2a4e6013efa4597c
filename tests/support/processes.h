// Ranks as processes for tests: forks, collects what became of them, and ends who does not end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace weft::test {

struct Outcome {
  int code = -1;     // exit code; -1 if a signal ended it
  int signal = 0;    // that ended it
  std::string text;  // what the body returned, or the text of what it threw
};

// Exit codes of a body that returns, that throws a CommunicationError, that throws something else.
inline constexpr int kReturned = 0;
inline constexpr int kThrew = 1;
inline constexpr int kVerdict = 3;

struct ProcessesOptions {
  // Runs in the parent while the ranks do.
  std::function<void(const std::vector<pid_t>&)> meanwhile = {};
  // Ranks that are not waited for, but ended when all others have ended.
  std::vector<int> abandoned = {};
  double seconds = 100;  // after which whoever still runs is killed
};

// Runs body(rank) in `ranks` processes with one thread each. A child never returns from here and
// ends without destructors of statics. Call it while this process has no other busy thread.
std::vector<Outcome> run_processes(int ranks, const std::function<std::string(int rank)>& body,
                                   const ProcessesOptions& options = {});

// Whether a process is there and has not ended.
bool runs(int process);
// Waits for what must come, long enough for a machine that is busy with other things.
bool comes(const std::function<bool()>& condition);

// A name that no other test uses at the same time.
std::string fresh_job_name();
// Files that shared memory of this program would leave behind.
std::vector<std::string> leftovers();

}  // namespace weft::test
