#include "dist/mpi.h"

#ifdef WEFT_WITH_MPI

#include "dist/detail/mpi_transport.h"
#include "dist/detail/transport_communicator.h"

#include <unistd.h>

#include <vector>

namespace weft::dist {

bool has_mpi() {
  return true;
}

std::unique_ptr<Communicator> join_mpi(int rank, int size, CommunicatorOptions options) {
  auto transport = detail::make_mpi_transport(rank, size);
  // Rank 0's address and port, and a name for the job.
  detail::FileDescriptor listener;
  std::string where;
  if (rank == 0) {
    char host[256] = {};
    WEFT_CHECK(gethostname(host, sizeof host - 1) == 0, "join_mpi",
               "expected a host name, got none");
    int port = 0;
    const std::string address = transport->alone_on_host() ? "127.0.0.1" : host;
    listener = detail::listen_at(address, port, "join_mpi");
    where = detail::Frame(0).put(address).put(port).put(concat({"mpi-", getpid()})).bytes();
  }
  detail::Frame frame = detail::Frame::of(transport->broadcast(where));
  detail::Control::Options joining{
      .op = "join_mpi", .rank = rank, .size = size, .timeout_seconds = options.timeout_seconds};
  joining.address = frame.text();
  joining.port = static_cast<int>(frame.number());
  joining.job = frame.text();
  auto control = std::make_unique<detail::Control>(joining, std::move(listener));
  std::vector<int> everyone;
  for (int r = 0; r < size; ++r)
    everyone.push_back(r);
  return std::make_unique<detail::TransportCommunicator>(
      std::make_shared<detail::Network>(std::move(transport), std::move(control)), 0, rank,
      std::move(everyone), "world", std::make_shared<Recorder>(), options);
}

}  // namespace weft::dist

#else

namespace weft::dist {

bool has_mpi() {
  return false;
}

std::unique_ptr<Communicator> join_mpi(int, int, CommunicatorOptions) {
  throw Error(
      "[join_mpi] expected a build with MPI, got one without: install libopenmpi-dev and configure "
      "with -DWEFT_MPI=ON");
}

}  // namespace weft::dist

#endif
