#include "dist/gloo.h"

#include "dist/detail/frame.h"
#include "dist/detail/gloo_transport.h"
#include "dist/detail/transport_communicator.h"

#include <vector>

namespace weft::dist {

std::unique_ptr<Communicator> join_gloo(const GlooOptions& job, CommunicatorOptions options) {
  WEFT_CHECK(job.size >= 1 && job.rank >= 0 && job.rank < job.size, "join_gloo",
             "expected a rank out of ", job.size, ", got ", job.rank);
  WEFT_CHECK(!job.address.empty() && job.port >= 1 && job.port <= 65535, "join_gloo",
             "expected the address and the port of rank 0, got '", job.address, "' and ", job.port);
  auto control = std::make_unique<detail::Control>(
      detail::Control::Options{.op = "join_gloo",
                               .job = job.job,
                               .address = job.address,
                               .port = job.port,
                               .rank = job.rank,
                               .size = job.size,
                               .timeout_seconds = options.timeout_seconds});
  auto transport = detail::make_gloo_transport(*control, job.own_address, options.timeout_seconds);
  std::vector<int> everyone;
  for (int r = 0; r < job.size; ++r)
    everyone.push_back(r);
  return std::make_unique<detail::TransportCommunicator>(
      std::make_shared<detail::Network>(std::move(transport), std::move(control)), 0, job.rank,
      std::move(everyone), "world", std::make_shared<Recorder>(), options);
}

int free_port(const std::string& address) {
  int port = 0;
  const auto listener = detail::listen_at(address, port, "free_port");
  return port;
}

}  // namespace weft::dist
