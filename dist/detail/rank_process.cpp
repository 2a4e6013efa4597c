#include "dist/detail/rank_process.h"

#include "core/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::dist::detail {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts)
    result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Numbers 0 to 2 belong to standard input, output and errors, even where those are closed.
FileDescriptor above_standard(int number) {
  if (number > STDERR_FILENO) return FileDescriptor(number);
  const FileDescriptor low(number);
  return FileDescriptor(fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// Should somebody have ended the guardian, the ranks still have their death signal.
void tell(int line, pid_t word) {
  [[maybe_unused]] const ssize_t told = write(line, &word, sizeof word);
}

// The new process, from fork to exec: system calls only.
[[noreturn]] void become(const ProcessPlan& plan, char* const* command, char* const* environment,
                         const sigset_t& mask, pid_t parent, int guardian, int report) {
  setpgid(0, 0);
  tell(guardian, getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (dup2(plan.input, STDIN_FILENO) >= 0 && dup2(plan.output, STDOUT_FILENO) >= 0 &&
      dup2(plan.errors, STDERR_FILENO) >= 0) {
    execve(command[0], command, environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(report, &error, sizeof error);
  _exit(127);
}

// The guardian's life: learns of groups until it is told 0 (called off) or hears nothing any more.
[[noreturn]] void guard(int line) {
  constexpr int kMost = 1 << 16;
  static pid_t groups[kMost];
  int count = 0;
  setsid();
  prctl(PR_SET_NAME, "weft-guardian");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE})
    signal(number, SIG_IGN);
  if (line > 0) close_range(0, static_cast<unsigned>(line) - 1, 0);
  close_range(static_cast<unsigned>(line) + 1, ~0U, 0);
  if (chdir("/") != 0) _exit(1);
  pid_t word = 0;
  for (;;) {
    const ssize_t got = read(line, &word, sizeof word);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof word) break;
    if (word == 0) _exit(0);
    if (count < kMost) groups[count++] = word;
  }
  for (int i = 0; i < count; ++i)
    kill(-groups[i], SIGKILL);
  _exit(0);
}

// The group of a running process in /proc; 0 of one that has ended.
pid_t group_of(const char* process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", process);
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t size = file.valid() ? read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0) return 0;
  text[size] = 0;
  // "pid (any name) state parent group"
  const char* after_name = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  int group = 0;
  if (!after_name || std::sscanf(after_name + 1, " %c %d %d", &state, &parent, &group) != 3)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : group;
}

}  // namespace

Pipe make_pipe() {
  int ends[2];
  WEFT_CHECK(pipe2(ends, O_CLOEXEC) == 0, "launch", "expected a pipe, got ", std::strerror(errno));
  return {above_standard(ends[0]), above_standard(ends[1])};
}

pid_t start_process(const ProcessPlan& plan, const Guardian& guardian, const sigset_t& mask) {
  const std::vector<char*> command = pointers(plan.command);
  const std::vector<char*> environment = pointers(plan.environment);
  Pipe report = make_pipe();
  const pid_t parent = getpid();
  const pid_t process = fork();
  WEFT_CHECK(process >= 0, "launch", "expected to start a process, got ", std::strerror(errno));
  if (process == 0)
    become(plan, command.data(), environment.data(), mask, parent, guardian.line(),
           report.write.get());
  setpgid(process, process);  // here and there, so that it holds from now on
  report.write = FileDescriptor();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(report.read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return process;
  waitpid(process, nullptr, 0);
  throw_error("launch",
              {"expected a program that runs, got ", plan.command[0], ": ", std::strerror(error)});
}

// By number: the header of Debian 12's C library forgets that it is C.
FileDescriptor open_process(pid_t process) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

Ending ending_of(int process_descriptor) {
  siginfo_t info{};
  int result = 0;
  do {
    result = waitid(P_PIDFD, static_cast<id_t>(process_descriptor), &info, WEXITED | WNOWAIT);
  } while (result != 0 && errno == EINTR);
  WEFT_CHECK(result == 0, "launch", "expected a rank's exit code, got ", std::strerror(errno));
  if (info.si_code == CLD_EXITED) return {.code = info.si_status};
  return {.signal = info.si_status};
}

std::vector<pid_t> living_groups(const std::vector<pid_t>& groups) {
  std::vector<pid_t> living;
  DIR* directory = opendir("/proc");
  WEFT_CHECK(directory, "launch", "expected to read /proc, got ", std::strerror(errno));
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const pid_t group = group_of(entry->d_name);
    if (std::binary_search(groups.begin(), groups.end(), group)) living.push_back(group);
  }
  closedir(directory);
  std::sort(living.begin(), living.end());
  living.erase(std::unique(living.begin(), living.end()), living.end());
  return living;
}

Guardian::Guardian() {
  Pipe pipe = make_pipe();
  process_ = fork();
  WEFT_CHECK(process_ >= 0, "launch", "expected to start a process, got ", std::strerror(errno));
  if (process_ == 0) guard(pipe.read.get());
  line_ = std::move(pipe.write);
}

Guardian::~Guardian() {
  tell(line_.get(), 0);
  line_ = FileDescriptor();
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace weft::dist::detail
