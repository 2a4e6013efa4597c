#include "dist/tcp.h"

#include "dist/detail/frame.h"
#include "dist/detail/gloo_transport.h"
#include "dist/detail/hosts.h"
#include "dist/detail/tcp_transport.h"
#include "dist/shm.h"

#include <vector>

namespace weft::dist {
namespace {

// Ranks a host where they share hosts evenly, host after host; else 1. The same on all ranks.
int ranks_a_host(detail::Control& control, const TcpOptions& job) {
  const std::vector<std::string> told =
      control.exchange(concat({job.local_rank, " of ", job.local_size}));
  const int places = job.local_size;
  if (places < 2 || job.size % places != 0 || job.size == places) return 1;
  for (int r = 0; r < job.size; ++r) {
    if (told[static_cast<size_t>(r)] != concat({r % places, " of ", places})) return 1;
  }
  return places;
}

std::unique_ptr<detail::TransportCommunicator::Hosts> join_hosts(
    const std::shared_ptr<detail::Network>& network, const TcpOptions& job, int places,
    CommunicatorOptions options) {
  const int host = job.rank / places;
  const int place = job.rank % places;
  // The end of a job's name is what tells it from others.
  const size_t cut = job.job.size() > 48 ? job.job.size() - 48 : 0;
  auto hosts = std::make_unique<detail::TransportCommunicator::Hosts>();
  hosts->inside = join_shm(concat({job.job.substr(cut), "-host-", host}), place, places, options);
  // Every rank takes a number; the first host's ranks give theirs.
  const uint64_t number = network->new_number() - static_cast<uint64_t>(job.rank - place);
  std::vector<int> members;
  for (int h = 0; h < job.size / places; ++h)
    members.push_back(h * places + place);
  hosts->across = std::make_unique<detail::TransportCommunicator>(
      network, number, host, std::move(members), concat({"world/hosts[", place, "]"}),
      std::make_shared<Recorder>(), options);
  return hosts;
}

}  // namespace

std::unique_ptr<Communicator> join_tcp(const TcpOptions& job, CommunicatorOptions options) {
  WEFT_CHECK(job.size >= 1 && job.rank >= 0 && job.rank < job.size, "join_tcp",
             "expected a rank out of ", job.size, ", got ", job.rank);
  WEFT_CHECK(!job.address.empty() && job.port >= 1 && job.port <= 65535, "join_tcp",
             "expected the address and the port of rank 0, got '", job.address, "' and ", job.port);
  auto control = std::make_unique<detail::Control>(
      detail::Control::Options{.op = "join_tcp",
                               .job = job.job,
                               .address = job.address,
                               .port = job.port,
                               .rank = job.rank,
                               .size = job.size,
                               .timeout_seconds = options.timeout_seconds});
  const int places = ranks_a_host(*control, job);
  const auto make = job.by_gloo ? detail::make_gloo_transport : detail::make_tcp_transport;
  auto transport = make(*control, job.own_address, options.timeout_seconds);
  std::vector<int> everyone;
  for (int r = 0; r < job.size; ++r)
    everyone.push_back(r);
  const auto network = std::make_shared<detail::Network>(std::move(transport), std::move(control));
  auto world = std::make_unique<detail::TransportCommunicator>(
      network, 0, job.rank, std::move(everyone), "world", std::make_shared<Recorder>(), options);
  if (places > 1) world->share_hosts(join_hosts(network, job, places, options));
  return world;
}

int free_port(const std::string& address) {
  int port = 0;
  const auto listener = detail::listen_at(address, port, "free_port");
  return port;
}

}  // namespace weft::dist
