// A rank as a process: started in a process group of its own, ended with everything it has started.
#pragma once

#include "dist/detail/file_descriptor.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft::dist::detail {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
// Closed in programs that are started. Throws Error.
Pipe make_pipe();

// A process in a session of its own that ends the groups it has been told of, if this process ends
// without having called off: also when SIGKILL took it. Members of a group that survive the leader
// are so reached too.
class Guardian {
 public:
  Guardian();
  ~Guardian();  // calls off
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  // Takes the numbers of groups, each as a pid_t. Written by the ranks themselves, before they can
  // have started anything.
  int line() const { return line_.get(); }

 private:
  pid_t process_ = -1;
  FileDescriptor line_;
};

struct ProcessPlan {
  std::vector<std::string> command;      // command[0] is a path
  std::vector<std::string> environment;  // NAME=value, all of it
  int input = -1;                        // descriptors of the new process, kept open here
  int output = -1;
  int errors = -1;
};

// Starts it as the leader of a new process group under a guardian, with the signal mask `mask`. It
// gets SIGKILL when this thread's process ends. Throws Error if it cannot be run.
pid_t start_process(const ProcessPlan& plan, const Guardian& guardian, const sigset_t& mask);

// A descriptor (pidfd) that is readable once the child has ended; closed if there is none.
FileDescriptor open_process(pid_t process);

// How a process that has ended did so.
struct Ending {
  int code = 0;    // what it returned
  int signal = 0;  // else what ended it
  bool failed() const { return code != 0 || signal != 0; }
  int exit_code() const { return signal ? 128 + signal : code; }
};
// Of a child whose descriptor is readable. It stays a zombie, so that its number and that of
// its group stay its own.
Ending ending_of(int process_descriptor);

// Which of the groups have members that still run. `groups` are sorted.
std::vector<pid_t> living_groups(const std::vector<pid_t>& groups);

}  // namespace weft::dist::detail
