// Messages by MPI, on a duplicate of MPI_COMM_WORLD. MPI's header is seen by mpi_transport.cpp
// alone.
#pragma once

#include "dist/detail/transport.h"

#include <memory>
#include <string>

namespace weft::dist::detail {

class MpiTransportBase : public Transport {
 public:
  // Rank 0's text on every rank; before anything else.
  virtual std::string broadcast(const std::string& text) = 0;
  // Whether all ranks share this host.
  virtual bool alone_on_host() const = 0;
};

std::unique_ptr<MpiTransportBase> make_mpi_transport(int rank, int size);

}  // namespace weft::dist::detail
