// Ranks as processes of one host that meet in shared memory.
#pragma once

#include "dist/communicator.h"

#include <memory>
#include <string>

namespace weft::dist {

// Joins job `job` (letters, digits, dashes; at most 64) as rank `rank` of `size`; returns when all
// have joined, or throws CommunicationError after the timeout, or as soon as one has died. Ranks of
// one job are processes of one user in one network namespace. The name is free again once all have
// joined.
//
// What ranks share are memory files without a name: they go when the last process does, whatever
// ended it. Memory from allocate() is reached by all ranks directly; other memory is copied through
// a window of 1 MiB. What allocate() gives back to the heap stays with the process for reuse.
std::unique_ptr<Communicator> join_shm(const std::string& job, int rank, int size,
                                       CommunicatorOptions options = {});

}  // namespace weft::dist
