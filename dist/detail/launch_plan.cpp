#include "dist/detail/launch_plan.h"

#include "core/error.h"
#include "dist/detail/file_descriptor.h"
#include "dist/environment.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace weft::dist {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

bool runs(const std::string& path) {
  std::error_code error;
  return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, error);
}

std::string find_program(const std::string& program) {
  WEFT_CHECK(!program.empty(), "launch", "expected a program, got none");
  if (program.find('/') != std::string::npos) {
    WEFT_CHECK(runs(program), "launch", "expected a program that runs, got ", program, ": ",
               std::strerror(errno ? errno : EACCES));
    return program;
  }
  const char* variable = std::getenv("PATH");
  std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (runs(candidate)) return candidate;
    begin = end + 1;
  }
  throw_error("launch", {"expected a program on PATH, got ", program});
}

// A port that is free now. Nobody holds it until rank 0 listens there, but the system hands out
// another to whoever asks next.
int free_port() {
  const detail::FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool found =
      probe.valid() &&
      bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  WEFT_CHECK(found, "launch", "expected a free port, got ", std::strerror(errno));
  return ntohs(address.sin_port);
}

std::string new_job() {
  uint64_t mark = 0;
  WEFT_CHECK(getrandom(&mark, sizeof mark, 0) == sizeof mark, "launch",
             "expected random bytes, got ", std::strerror(errno));
  char name[64];
  std::snprintf(name, sizeof name, "weft-%d-%016llx", static_cast<int>(getpid()),
                static_cast<unsigned long long>(mark));
  return name;
}

// The environment of this process with `variables` set.
std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto same = [&](const auto& variable) { return variable.first == name; };
    if (std::none_of(variables.begin(), variables.end(), same)) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables)
    result.push_back(name + "=" + value);
  return result;
}

// What a shell on another host does: runs the rank in a group of its own, ends the group when the
// input ends (that is, when ssh or the launcher has gone), and returns what the rank returned. How
// many processors there are for the host's `ranks` is known there alone.
std::string remote_script(const LaunchOptions& options, const Variables& variables, int ranks) {
  std::string words = "env";
  for (const auto& [name, value] : variables)
    words += " " + detail::shell_quoted(name + "=" + value);
  words += " setsid";
  for (const std::string& word : options.command)
    words += " " + detail::shell_quoted(word);
  char grace[32];
  std::snprintf(grace, sizeof grace, "%.3f", options.grace_seconds);
  const std::string script =
      "cd " + detail::shell_quoted(std::filesystem::current_path().string()) + " || exit 126\n" +
      "threads=$(nproc 2>/dev/null)\n"
      "threads=$((${threads:-1} / " +
      std::to_string(ranks) +
      "))\n"
      "[ $threads -ge 1 ] || threads=1\n"
      "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$threads}\n"
      "exec 3<&0\n" +
      words +
      " </dev/null 3<&- &\n"
      "rank=$!\n"
      "{ cat <&3; kill -TERM -$rank; kill -CONT -$rank; sleep " +
      grace +
      "; kill -KILL -$rank; } >/dev/null 2>&1 &\n"
      "watch=$!\n"
      "exec 3<&-\n"
      "wait $rank\n"
      "code=$?\n"
      "kill $watch\n"
      "kill -KILL -$rank 2>/dev/null\n"
      "exit $code\n";
  // Whatever shell the user has there, this is for sh.
  return "exec sh -c " + detail::shell_quoted(script);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c != ' ') {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Rank 0's address, as the others know it.
std::string master_of(const LaunchOptions& options, bool several_hosts) {
  if (!options.master_address.empty()) return options.master_address;
  if (!several_hosts) return "127.0.0.1";
  if (options.hosts[0].name != "localhost") return options.hosts[0].name;
  char name[256] = {};
  WEFT_CHECK(gethostname(name, sizeof name - 1) == 0, "launch", "expected this host's name, got ",
             std::strerror(errno));
  return name;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    begin = end + 1;
    Host host;
    const size_t colon = item.rfind(':');
    if (colon != std::string::npos) {
      const std::string slots = item.substr(colon + 1);
      const bool digits = !slots.empty() && slots.size() < 8 &&
                          slots.find_first_not_of("0123456789") == std::string::npos;
      host.slots = digits ? std::atoi(slots.c_str()) : 0;
      item.resize(colon);
    }
    host.name = item;
    // A name that begins with '-' would be an option of ssh.
    WEFT_CHECK(!item.empty() && item[0] != '-' && host.slots >= 1 && host.slots <= kMostRanks,
               "launch", "expected hosts such as a,b:4, got '", list, "'");
    for (const Host& other : hosts) {
      WEFT_CHECK(other.name != host.name, "launch", "expected every host once, got ", host.name,
                 " twice in '", list, "'");
    }
    hosts.push_back(host);
  }
  return hosts;
}

namespace detail {

std::string log_path(const std::string& logs, int rank) {
  return logs + "/rank-" + std::to_string(rank) + ".log";
}

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::vector<RankPlan> plan_launch(const LaunchOptions& options, const std::string& logs) {
  std::vector<Host> hosts = options.hosts;
  if (hosts.empty()) hosts.push_back({.slots = options.ranks});
  int64_t slots = 0;
  for (const Host& host : hosts)
    slots += host.slots;
  WEFT_CHECK(!options.command.empty(), "launch", "expected a program, got none");
  WEFT_CHECK(options.ranks >= 1 && options.ranks <= std::min<int64_t>(slots, kMostRanks), "launch",
             "expected 1 to ", std::min<int64_t>(slots, kMostRanks), " ranks, got ", options.ranks);

  const bool several_hosts = hosts[0].slots < options.ranks;
  const std::string master = master_of(options, several_hosts);
  const int port = options.master_port ? options.master_port : free_port();
  const std::string job = new_job();
  std::string program;
  std::vector<std::string> ssh;
  std::vector<RankPlan> plans;
  for (const Host& host : hosts) {
    const int first = static_cast<int>(plans.size());
    const int count = std::min(host.slots, options.ranks - first);
    for (int local = 0; local < count; ++local) {
      RankPlan plan;
      plan.remote = host.name != "localhost";
      Variables variables;
      const auto set = [&](const std::string& name, const std::string& value) {
        variables.emplace_back("WEFT_" + name, value);
        variables.emplace_back(name, value);
      };
      set("RANK", std::to_string(first + local));
      set("WORLD_SIZE", std::to_string(options.ranks));
      set("LOCAL_RANK", std::to_string(local));
      set("LOCAL_WORLD_SIZE", std::to_string(count));
      set("MASTER_ADDR", master);
      set("MASTER_PORT", std::to_string(port));
      variables.emplace_back("WEFT_JOB", job);
      const char* threads = std::getenv("OMP_NUM_THREADS");
      if (plan.remote) {
        if (threads) variables.emplace_back("OMP_NUM_THREADS", threads);
        if (ssh.empty()) {
          ssh = words_of(options.ssh);
          WEFT_CHECK(!ssh.empty(), "launch", "expected an ssh program, got '", options.ssh, "'");
          ssh[0] = find_program(ssh[0]);
        }
        plan.command = ssh;
        plan.command.push_back(host.name);
        plan.command.push_back(remote_script(options, variables, count));
        plan.environment = environment_with({});
      } else {
        if (program.empty()) program = find_program(options.command[0]);
        plan.command = options.command;
        plan.command[0] = program;
        if (plans.empty() && !options.show_all && isatty(options.output))
          variables.emplace_back("WEFT_TERMINAL", "1");
        variables.emplace_back("WEFT_LOG", log_path(logs, first + local));
        if (!threads) {
          const int processors = threads_per_rank(1 << 20, own_processors(), count);
          variables.emplace_back("OMP_NUM_THREADS", std::to_string(processors));
        }
        // What is asked for comes last: it holds.
        for (const auto& [name, value] : options.variables) {
          std::erase_if(variables,
                        [&name = name](const auto& other) { return other.first == name; });
          variables.emplace_back(name, value);
        }
        plan.environment = environment_with(variables);
      }
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

}  // namespace detail
}  // namespace weft::dist
