// What every communicator must do, as a body that each rank runs; it throws where a result is
// wrong. Backends' tests run it on threads, on processes, over sockets.
#pragma once

#include "dist/communicator.h"

#include <cstdint>

namespace weft::test {

// All collectives on `count` elements a piece of `dtype`, every reduction that it has, in ordinary
// memory or in memory from allocate().
void check_collectives(dist::Communicator& comm, DType dtype, int64_t count, bool allocated);
// The same for every dtype and for counts 0, 1, odd ones, and large ones.
void check_all_collectives(dist::Communicator& comm);
// Sums of nodes against a tree of one's own, for every way to cut `leaves` over the ranks; also
// that the bits are the same for all.
void check_node_sums(dist::Communicator& comm, int64_t leaves, int64_t count);
// Started calls: order, handles, calls that are not started in between.
void check_started(dist::Communicator& comm);
// Groups, and groups of groups.
void check_split(dist::Communicator& comm);

// A number that tells sums of random values apart which differ in a single bit; the same on every
// rank, and for every backend with as many ranks.
uint64_t digest_of_sums(dist::Communicator& comm);

}  // namespace weft::test
