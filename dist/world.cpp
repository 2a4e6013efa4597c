#include "dist/world.h"

#include "dist/mpi.h"
#include "dist/shm.h"
#include "dist/tcp.h"
#include "dist/thread_ranks.h"

#include <unistd.h>

#include <cstdlib>

namespace weft::dist {
namespace {

// Where rank 0 can be met. torchrun's agent has a store of its own at the very port it names.
std::unique_ptr<Communicator> join_by_tcp(const RankEnvironment& environment, bool by_gloo,
                                          CommunicatorOptions options) {
  TcpOptions job{.job = environment.job,
                 .address = environment.master_address,
                 .port = environment.master_port,
                 .rank = environment.rank,
                 .size = environment.size,
                 .local_rank = environment.local_rank,
                 .local_size = environment.local_size,
                 .by_gloo = by_gloo};
  if (!environment.launched()) {
    job.job = "alone";
    job.address = "127.0.0.1";
    job.port = free_port(job.address);
  }
  WEFT_CHECK(!job.address.empty(), "world",
             "expected MASTER_ADDR, the address of rank 0, for ranks on several hosts, got none");
  if (std::getenv("TORCHELASTIC_RUN_ID")) job.port = job.port < 65535 ? job.port + 1 : 1024;
  return join_tcp(job, options);
}

}  // namespace

std::string choose_backend(const RankEnvironment& environment, const std::string& wanted) {
  std::string backend = wanted;
  if (backend == "auto") {
    if (const char* variable = std::getenv("WEFT_BACKEND"); variable && *variable)
      backend = variable;
  }
  if (backend == "auto") {
    if (environment.size == 1) return "thread";
    return environment.one_host() ? "shm" : "tcp";
  }
  if (backend == "thread") {
    WEFT_CHECK(environment.size == 1, "world", "expected one rank for the backend thread, got ",
               environment.size, " ranks, which are processes");
    return backend;
  }
  if (backend == "tcp" || backend == "gloo") return backend;
  if (backend == "mpi") {
    WEFT_CHECK(has_mpi(), "world",
               "expected a build with MPI for the backend mpi, got one without");
    WEFT_CHECK(environment.launcher == "mpirun" || environment.launcher == "mpiexec" ||
                   environment.launcher == "srun",
               "world", "expected ranks that mpirun has started for the backend mpi, got ",
               environment.launched() ? environment.launcher + "'s" : "none");
    return backend;
  }
  WEFT_CHECK(backend == "shm", "world", "expected a backend: thread, shm, tcp, gloo or mpi, got ",
             backend);
  WEFT_CHECK(environment.one_host(), "world",
             "expected all ranks on one host for the backend shm, got ", environment.local_size,
             " of ", environment.size, " here");
  return backend;
}

std::unique_ptr<Communicator> join_world(const RankEnvironment& environment,
                                         const WorldOptions& options) {
  const std::string backend = choose_backend(environment, options.backend);
  if (backend == "thread") return make_single_rank(options.communicator);
  if (backend == "tcp" || backend == "gloo")
    return join_by_tcp(environment, backend == "gloo", options.communicator);
  if (backend == "mpi") return join_mpi(environment.rank, environment.size, options.communicator);
  // A rank by itself has no launcher that gives it a name.
  const std::string job =
      environment.launched() ? environment.job : "alone-" + std::to_string(getpid());
  return join_shm(job, environment.rank, environment.size, options.communicator);
}

}  // namespace weft::dist
