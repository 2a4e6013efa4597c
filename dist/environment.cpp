#include "dist/environment.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace weft::dist {
namespace {

constexpr size_t kLongestJob = 64;

// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Launcher kWeft{"weft", "WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK",
                         "WEFT_LOCAL_WORLD_SIZE"};
constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Launcher kMpirun{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kMpiexec{"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                            "MPI_LOCALNRANKS"};
// Its ranks per host are a list.
constexpr Launcher kSrun{"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
bool is_slurm(const Launcher& launcher) {
  return !launcher.local_size;
}
constexpr std::array kLaunchers = {kWeft, kTorchrun, kMpirun, kMpiexec, kSrun};

class EnvironmentReader {
 public:
  explicit EnvironmentReader(const GetEnvironment& get) : get_(get) {}

  // Null also where it is empty.
  const char* text(const char* name) const {
    const char* value = name ? get_(name) : nullptr;
    return value && *value ? value : nullptr;
  }
  std::string text_or(const char* name, const std::string& otherwise) const {
    const char* value = text(name);
    return value ? value : otherwise;
  }

  std::optional<int> number(const char* name, int64_t low, int64_t high) const {
    const char* value = text(name);
    if (!value) return std::nullopt;
    int64_t number = 0;
    const char* end = value + std::strlen(value);
    const auto [stopped, error] = std::from_chars(value, end, number);
    WEFT_CHECK(error == std::errc() && stopped == end && number >= low && number <= high,
               "environment", "expected ", name, " to be an integer in [", low, ", ", high,
               "], got '", value, "'");
    return static_cast<int>(number);
  }

  // "RANK=3"
  std::string shown(const char* name) const {
    return std::string(name) + "=" + text_or(name, "(unset)");
  }

 private:
  const GetEnvironment& get_;
};

// A number of "3", of "2(x3),1" (2 2 2 1): of the host `index`.
std::optional<int> of_host(std::string_view list, int index) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    int count = 0;
    int times = 1;
    const char* end = item.data() + item.size();
    const auto [stopped, error] = std::from_chars(item.data(), end, count);
    if (error != std::errc()) return std::nullopt;
    if (end - stopped > 3 && stopped[0] == '(' && stopped[1] == 'x') {
      if (std::from_chars(stopped + 2, end, times).ec != std::errc()) return std::nullopt;
    } else if (stopped != end) {
      return std::nullopt;
    }
    if (index < times) return count;
    index -= times;
  }
  return std::nullopt;
}

// The first host of a Slurm list: "node[03-05,9],other" is node03.
std::string first_host(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    for (++i; i < list.size() && list[i] != '-' && list[i] != ',' && list[i] != ']'; ++i)
      host += list[i];
    i = std::min(list.find(']', i), list.size() - 1);
  }
  return host;
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211U;
  }
  return hash;
}

// A name that backends take, still another for another text.
std::string as_job(const std::string& text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  };
  std::string job = text;
  std::replace_if(
      job.begin(), job.end(), [&](char c) { return !fits(c); }, '-');
  if (job == text && job.size() <= kLongestJob) return job;
  const std::string mark = "-" + std::to_string(hash_of(text));  // at most 21
  return job.substr(0, kLongestJob - mark.size()) + mark;
}

bool in_slurm_step(const EnvironmentReader& reader) {
  const char* step = reader.text("SLURM_STEP_ID");
  // Batch scripts, allocations' shells and the like are steps numbered from 0xfffffff0 on.
  return step && std::strtoull(step, nullptr, 10) < 0xfffffff0U;
}

std::optional<int> local_size_of(const EnvironmentReader& reader, const Launcher& launcher) {
  if (is_slurm(launcher)) {
    for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
      const char* list = reader.text(name);
      if (!list) continue;
      const auto count = of_host(list, reader.number("SLURM_NODEID", 0, kMostRanks).value_or(0));
      WEFT_CHECK(count, "environment", "expected ", name,
                 " to count the tasks of host SLURM_NODEID, got '", list, "' for ",
                 reader.shown("SLURM_NODEID"));
      return count;
    }
    return std::nullopt;
  }
  return reader.number(launcher.local_size, 1, kMostRanks);
}

// What one launcher says; nothing if it has not spoken.
std::optional<RankEnvironment> ask(const EnvironmentReader& reader, const Launcher& launcher) {
  if (is_slurm(launcher) && !in_slurm_step(reader)) return std::nullopt;
  const bool of_step = is_slurm(launcher) && reader.text("SLURM_STEP_NUM_TASKS");
  const auto rank = reader.number(launcher.rank, 0, kMostRanks - 1);
  const auto size = reader.number(of_step ? "SLURM_STEP_NUM_TASKS" : launcher.size, 1, kMostRanks);
  if (!rank && !size) return std::nullopt;
  WEFT_CHECK(rank && size, "environment", "expected both ", launcher.rank, " and ", launcher.size,
             ", got ", reader.shown(launcher.rank), " and ", reader.shown(launcher.size));
  WEFT_CHECK(*rank < *size, "environment", "expected ", launcher.rank, " to be less than ",
             launcher.size, ", got rank ", *rank, " of ", *size);

  const auto local_rank = reader.number(launcher.local_rank, 0, kMostRanks - 1);
  const auto local_size = local_size_of(reader, launcher);
  RankEnvironment is;
  is.launcher = launcher.name;
  is.rank = *rank;
  is.size = *size;
  if (!local_size) {
    WEFT_CHECK(!local_rank || *local_rank == *rank, "environment",
               "expected to be told how many of ", *size, " ranks run on this host",
               launcher.local_size ? std::string(", by ") + launcher.local_size : std::string(),
               ", got ", reader.shown(launcher.rank), " and ", reader.shown(launcher.local_rank));
    is.local_rank = *rank;
    is.local_size = *size;
    return is;
  }
  WEFT_CHECK(local_rank, "environment", "expected ", launcher.local_rank, " beside ", *local_size,
             " ranks on this host, got none");
  WEFT_CHECK(*local_rank < *local_size && *local_size <= *size && *local_rank <= *rank,
             "environment", "expected a place among the ranks of this host, got local rank ",
             *local_rank, " of ", *local_size, " for ", reader.shown(launcher.rank), " of ", *size);
  is.local_rank = *local_rank;
  is.local_size = *local_size;
  return is;
}

// What makes this launch unlike others, in the launcher's own terms.
std::string job_of(const EnvironmentReader& reader, const RankEnvironment& is, int64_t parent) {
  if (const char* job = reader.text("WEFT_JOB")) return as_job(job);
  const bool by_ports = is.launcher == "weft" || is.launcher == "torchrun" ||
                        (is.launcher == "mpiexec" && !is.one_host());
  WEFT_CHECK(!by_ports || reader.text("MASTER_PORT"), "environment",
             "expected MASTER_PORT or WEFT_JOB, to tell this launch from others, beside rank ",
             is.rank, " of ", is.size, " by ", is.launcher, ", got neither");
  std::string job = is.launcher;
  const auto with = [&](const char* name) {
    if (const char* value = reader.text(name)) job += std::string("-") + value;
  };
  if (by_ports) {
    with("TORCHELASTIC_RUN_ID");
    // Each host's agent counts restarts of its own.
    if (is.one_host()) with("TORCHELASTIC_RESTART_COUNT");
    with("MASTER_ADDR");
    with("MASTER_PORT");
  } else if (is.launcher == "mpirun") {
    with(reader.text("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
  } else if (is.launcher == "srun") {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_SRUN_COMM_PORT"})
      with(name);
  } else if (is.launcher == "mpiexec") {
    job += "-" + std::to_string(parent);  // the proxy that started all ranks
  }
  return as_job(job);
}

void find_master(const EnvironmentReader& reader, RankEnvironment& is) {
  if (const char* address = reader.text("WEFT_MASTER_ADDR")) {
    is.master_address = address;
  } else if (const char* other = reader.text("MASTER_ADDR")) {
    is.master_address = other;
  } else if (is.one_host()) {
    is.master_address = "127.0.0.1";
  } else if (const char* hosts = reader.text("SLURM_STEP_NODELIST")) {
    is.master_address = first_host(hosts);
  }
  const char* name = reader.text("WEFT_MASTER_PORT") ? "WEFT_MASTER_PORT" : "MASTER_PORT";
  if (const auto port = reader.number(name, 1, 65535)) {
    is.master_port = *port;
  } else {
    // Below the ports that systems hand out by themselves, which begin at 32768.
    is.master_port = 20000 + static_cast<int>(hash_of(is.job) % 12000);
  }
}

// Variables by hand or left over in a shell must not hide a launcher that says otherwise.
void check_against(const RankEnvironment& is, const EnvironmentReader& reader,
                   const Launcher& other) {
  const auto outer = ask(reader, other);
  if (!outer || outer->size == 1) return;
  WEFT_CHECK(is.size > outer->size || (is.size == outer->size && is.rank == outer->rank),
             "environment", "expected one launcher, got rank ", is.rank, " of ", is.size, " from ",
             is.launcher == "weft" ? kWeft.rank : kTorchrun.rank, " but rank ", outer->rank, " of ",
             outer->size, " from ", other.rank, ": unset the variables that are left over");
}

int processors_of(pid_t process) {
  cpu_set_t set;
  if (sched_getaffinity(process, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

RankEnvironment read_environment(const GetEnvironment& get, int64_t parent) {
  const EnvironmentReader reader(get);
  RankEnvironment is;
  for (const Launcher& launcher : kLaunchers) {
    const auto answer = ask(reader, launcher);
    if (!answer) continue;
    const bool for_one_program = &launcher < &kLaunchers[2];
    if (answer->size == 1 && !for_one_program) continue;
    is = *answer;
    // Slurm may speak PMI too, and knows more.
    const auto slurm = ask(reader, kSrun);
    if (is.launcher == "mpiexec" && slurm && slurm->rank == is.rank && slurm->size == is.size)
      is = *slurm;
    break;
  }
  if (is.launcher == "weft") {
    // Weft sets both, so that programs of others find themselves too.
    const auto twin = ask(reader, kTorchrun);
    WEFT_CHECK(!twin || (twin->rank == is.rank && twin->size == is.size), "environment",
               "expected one launcher, got rank ", is.rank, " of ", is.size, " from WEFT_RANK and ",
               reader.shown("RANK"), " of ", reader.shown("WORLD_SIZE"),
               ": unset the variables that are left over");
  } else if (is.launcher == "torchrun" && !reader.text("TORCHELASTIC_RUN_ID")) {
    for (size_t i = 2; i < kLaunchers.size(); ++i)
      check_against(is, reader, kLaunchers[i]);
  }
  WEFT_CHECK(is.launched() || !reader.text("PMIX_RANK") || reader.text("OMPI_COMM_WORLD_SIZE") ||
                 reader.text("PMI_SIZE") || in_slurm_step(reader),
             "environment", "expected to be told the number of ranks beside ",
             reader.shown("PMIX_RANK"), ", got none: set WEFT_RANK and WEFT_WORLD_SIZE");
  if (!is.launched()) return is;
  is.job = job_of(reader, is, parent);
  find_master(reader, is);
  return is;
}

RankEnvironment read_environment() {
  return read_environment([](const char* name) -> const char* { return std::getenv(name); },
                          getppid());
}

int threads_per_rank(int own_processors, int launcher_processors, int local_size) {
  return std::max(1, std::min(own_processors, launcher_processors / std::max(1, local_size)));
}

int own_processors() {
  return processors_of(0);
}

int threads_per_rank(int local_size) {
  return threads_per_rank(processors_of(0), processors_of(getppid()), local_size);
}

}  // namespace weft::dist
