#include "tests/support/processes.h"

#include "core/parallel.h"
#include "dist/communicator.h"
#include "tests/support/runs.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace weft::test {
namespace {

[[noreturn]] void run_child(const std::function<std::string(int)>& body, int rank, int pipe) {
  // OpenMP's threads do not survive a fork.
  set_num_threads(1);
  std::string text;
  int code = kReturned;
  try {
    text = body(rank);
  } catch (const dist::CommunicationError& error) {
    text = error.what();
    code = kVerdict;
  } catch (const std::exception& error) {
    text = error.what();
    code = kThrew;
  }
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  _exit(code);
}

}  // namespace

std::vector<Outcome> run_processes(int ranks, const std::function<std::string(int)>& body,
                                   const ProcessesOptions& options) {
  const auto count = static_cast<size_t>(ranks);
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int r = 0; r < ranks; ++r) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) std::abort();
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      run_child(body, r, ends[1]);
    }
    close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  if (options.meanwhile) options.meanwhile(pids);

  std::vector<Outcome> outcomes(count);
  std::vector<bool> ended(count, false);
  const auto reap = [&](size_t r, int flags) {
    int status = 0;
    if (ended[r] || waitpid(pids[r], &status, flags) != pids[r]) return;
    ended[r] = true;
    if (WIFEXITED(status)) outcomes[r].code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcomes[r].signal = WTERMSIG(status);
  };
  const double deadline = dist::clock_seconds() + options.seconds;
  const auto all_ended = [&] {
    for (size_t r = 0; r < count; ++r) {
      const bool abandoned =
          std::count(options.abandoned.begin(), options.abandoned.end(), static_cast<int>(r)) != 0;
      if (!ended[r] && !abandoned) return false;
    }
    return true;
  };
  while (!all_ended() && dist::clock_seconds() < deadline) {
    for (size_t r = 0; r < count; ++r)
      reap(r, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (size_t r = 0; r < count; ++r) {
    if (!ended[r]) kill(pids[r], SIGKILL);
    reap(r, 0);
    std::array<char, 4096> buffer;
    for (ssize_t n; (n = read(pipes[r], buffer.data(), buffer.size())) > 0;)
      outcomes[r].text.append(buffer.data(), static_cast<size_t>(n));
    close(pipes[r]);
  }
  return outcomes;
}

bool runs(int process) {
  const std::string stat = read_file("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

bool comes(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::string fresh_job_name() {
  static std::atomic<int> number{0};
  return concat({"test-", getpid(), "-", ++number});
}

std::vector<std::string> leftovers() {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  if (!folder) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.find("weft") != std::string::npos) names.push_back(name);
  }
  closedir(folder);
  return names;
}

}  // namespace weft::test
