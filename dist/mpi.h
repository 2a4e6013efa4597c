// Ranks that mpirun has started, by the network of the MPI library.
#pragma once

#include "dist/communicator.h"

#include <memory>

namespace weft::dist {

// Whether this build has it: found at configure time, or asked for with -DWEFT_MPI=ON.
bool has_mpi();

// Joins the other ranks of MPI_COMM_WORLD, of which this process is rank `rank` of `size` by its
// launcher: Error if MPI says otherwise. Initialises MPI unless the program has; then MPI must
// allow calls by several threads (MPI_THREAD_SERIALIZED or more). MPI is finalised when the process
// ends well, if it was initialised here. A process that ends without leaving makes mpirun end all
// others in its own way, as MPI's rules are.
//
// Rank 0 listens at a port of its own for what ranks tell each other beside their data (who is
// late, what the verdict is). The bits of a sum are those of every other backend.
std::unique_ptr<Communicator> join_mpi(int rank, int size, CommunicatorOptions options = {});

}  // namespace weft::dist
