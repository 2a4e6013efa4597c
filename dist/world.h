// Joining the ranks that were started with this one.
#pragma once

#include "dist/communicator.h"
#include "dist/environment.h"

#include <memory>
#include <string>

namespace weft::dist {

struct WorldOptions {
  // "auto" (or what WEFT_BACKEND says): `thread` for a single rank, `shm` for ranks of one host,
  // `tcp` for ranks of several. `tcp` and `gloo`, which is the same by the Gloo library, serve
  // ranks of one host as well, `mpi` those that mpirun has started. Under torchrun `tcp` and `gloo`
  // meet at the port after MASTER_PORT.
  std::string backend = "auto";
  CommunicatorOptions communicator = {};
};

// The communicator of all ranks of the launch; of this process alone where nothing launched it.
// Every rank calls it, once: it returns when all have come. Throws Error for a backend that cannot
// serve these ranks, and CommunicationError if one of them does not come.
std::unique_ptr<Communicator> join_world(const RankEnvironment& environment,
                                         const WorldOptions& options = {});

// The backend that join_world() takes. Throws Error.
std::string choose_backend(const RankEnvironment& environment, const std::string& wanted);

}  // namespace weft::dist
