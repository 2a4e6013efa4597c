#include "apps/weft/bench_ranks.h"

#include "dist/shm.h"
#include "dist/tcp.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>

namespace weft::app {
namespace {

using Body = std::function<std::vector<double>(dist::Communicator&)>;

std::unique_ptr<dist::Communicator> join(const BenchRanks& ranks, const std::string& job, int port,
                                         int rank) {
  if (ranks.backend == "shm") return dist::join_shm(job, rank, ranks.workers);
  return dist::join_tcp({.job = job,
                         .address = "127.0.0.1",
                         .port = port,
                         .rank = rank,
                         .size = ranks.workers,
                         .by_gloo = ranks.backend == "gloo"});
}

// Rank 0 writes what it measured to a pipe.
int rank_main(const BenchRanks& ranks, const std::string& job, int port, int rank, size_t results,
              const Body& body, int pipe) {
  try {
    const auto comm = join(ranks, job, port, rank);
    const std::vector<double> measured = body(*comm);
    WEFT_CHECK(measured.size() == results, "bench", "expected ", results, " numbers, got ",
               measured.size());
    const size_t bytes = results * sizeof(double);
    const bool sent =
        rank != 0 || write(pipe, measured.data(), bytes) == static_cast<ssize_t>(bytes);
    return sent ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

}  // namespace

std::vector<double> measure_on_processes(const BenchRanks& ranks, size_t results,
                                         const Body& body) {
  const int workers = ranks.workers;
  std::array<int, 2> ends{};
  WEFT_CHECK(pipe(ends.data()) == 0, "bench", "expected a pipe, got none");
  std::fflush(nullptr);
  const std::string job = "bench-" + std::to_string(getpid());
  const int port = ranks.backend == "shm" ? 0 : dist::free_port("127.0.0.1");
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int rank = 0; rank < workers; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // Ctrl-C and worse leave nobody behind
      if (getppid() != parent) _exit(1);
      _exit(rank_main(ranks, job, port, rank, results, body, ends[1]));
    }
    if (child < 0) break;
    children.push_back(child);
  }
  close(ends[1]);
  std::vector<double> numbers(results);
  const auto expected = static_cast<ssize_t>(results * sizeof(double));
  const bool measured = read(ends[0], numbers.data(), static_cast<size_t>(expected)) == expected;
  close(ends[0]);
  bool well = measured && children.size() == static_cast<size_t>(workers);
  for (const pid_t child : children) {
    int status = 0;
    if (!well) kill(child, SIGKILL);
    waitpid(child, &status, 0);
    well = well && status == 0;
  }
  WEFT_CHECK(well, "bench", "expected ", workers, " ranks to end well, got a failure");
  return numbers;
}

}  // namespace weft::app
