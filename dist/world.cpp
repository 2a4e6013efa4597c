#include "dist/world.h"

#include "dist/shm.h"
#include "dist/thread_ranks.h"

#include <unistd.h>

#include <cstdlib>

namespace weft::dist {

std::string choose_backend(const RankEnvironment& environment, const std::string& wanted) {
  std::string backend = wanted;
  if (backend == "auto") {
    if (const char* variable = std::getenv("WEFT_BACKEND"); variable && *variable)
      backend = variable;
  }
  if (backend == "auto") {
    if (environment.size == 1) return "thread";
    backend = "shm";
    WEFT_CHECK(environment.one_host(), "world", "expected all ranks on one host, got ",
               environment.local_size, " of ", environment.size,
               " here: this version has no backend that reaches other hosts");
  }
  if (backend == "thread") {
    WEFT_CHECK(environment.size == 1, "world", "expected one rank for the backend thread, got ",
               environment.size, " ranks, which are processes");
    return backend;
  }
  WEFT_CHECK(backend == "shm", "world", "expected a backend of this version: thread or shm, got ",
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
  // A rank by itself has no launcher that gives it a name.
  const std::string job =
      environment.launched() ? environment.job : "alone-" + std::to_string(getpid());
  return join_shm(job, environment.rank, environment.size, options.communicator);
}

}  // namespace weft::dist
