// Ranks that share hosts: the two communicators that carry large data between them, so that what
// leaves a host does not grow with the ranks that it has.
#pragma once

#include "dist/detail/transport_communicator.h"

#include <memory>

namespace weft::dist::detail {

// Of a communicator whose rank r is number r % places of host r / places. Both keep records of
// their own: what they move is part of a collective that is on record.
struct TransportCommunicator::Hosts {
  // The ranks of this host, in shared memory.
  std::unique_ptr<Communicator> inside;
  // The ranks of this rank's number, one a host.
  std::unique_ptr<TransportCommunicator> across;

  int places() const { return inside->size(); }
  int place() const { return inside->rank(); }
  int hosts() const { return across->size(); }
  int host() const { return across->rank(); }
};

}  // namespace weft::dist::detail
