// Collectives of large data where several ranks share a host: each rank adds up, or hands out, one
// share of the data within its host, and carries that share alone to the other hosts' ranks of the
// same number. Ranks have met before: all of them are there and want the same.
#include "dist/detail/hosts.h"
#include "dist/detail/settle.h"
#include "dist/detail/transport_exchange.h"
#include "dist/tree.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

namespace weft::dist::detail {
namespace {

constexpr int64_t kShareBytes = int64_t{1} << 20;  // of a rank, at a time

std::vector<Part> parts_of(const std::vector<Part>& parts, int64_t begin, int64_t count) {
  std::vector<Part> cut;
  for (const Part& part : parts)
    cut.push_back({part.node, part.values.part(begin, count)});
  return cut;
}

Call sum_of(Collective collective, ReduceOp op, std::vector<Part> parts, std::vector<Part> pending,
            std::vector<Part> results, int64_t leaves, DType parts_dtype) {
  Call call;
  call.parts_dtype = parts_dtype;
  call.collective = collective;
  call.op = op;
  call.parts = std::move(parts);
  call.pending = std::move(pending);
  call.results = std::move(results);
  call.leaves = leaves;
  return call;
}

}  // namespace

void TransportCommunicator::share_hosts(std::unique_ptr<Hosts> hosts) {
  hosts_ = std::move(hosts);
  hosts_->across->part_of_another_ = true;
}

// Nodes that this host's ranks add up to.
std::vector<Node> TransportCommunicator::Exchange::nodes_of_host() const {
  const int places = c_.hosts_->places();
  std::vector<Node> nodes;
  for (int r = c_.hosts_->host() * places; r < (c_.hosts_->host() + 1) * places; ++r) {
    for (int i = 0; i < envelope(r).parts; ++i)
      nodes.push_back(this->nodes() ? nodes_of(r)[i] : Node{0, r});
  }
  std::sort(nodes.begin(), nodes.end(),
            [](Node a, Node b) { return first_leaf(a) < first_leaf(b); });
  return merged(nodes, leaves());
}

// A rank without parts learns from the others what theirs are.
DType TransportCommunicator::Exchange::dtype_of_parts() const {
  DType dtype = dtype_;
  for (int r = 0; r < size(); ++r) {
    if (envelope(r).parts > 0) dtype = static_cast<DType>(envelope(r).contract.dtype);
  }
  return dtype;
}

// What sums are kept in between the two: 16-bit values are rounded once, at the end.
DType TransportCommunicator::Exchange::dtype_of_sums() const {
  const DType dtype = dtype_of_parts();
  return dtype == bf16 || dtype == f16 ? f32 : dtype;
}

// Parts and results of places * n elements, of which this rank's share has n.
void TransportCommunicator::Exchange::all_reduce_by_host(const std::vector<Part>& parts,
                                                         const std::vector<Part>& results) {
  Hosts& hosts = *c_.hosts_;
  const std::vector<Node> host_nodes = nodes_of_host();
  const int64_t places = hosts.places();
  const int64_t shares = results[0].values.count / places;
  const DType dtype = dtype_of_sums();
  const int64_t most = std::min(shares, kShareBytes / size_of(dtype));
  const auto buffers = static_cast<int64_t>(host_nodes.size());
  const int64_t buffer = most * size_of(dtype);

  // Two rounds are under way at a time: one between the hosts, the other within them.
  const Ref<Storage> staging = [&] {
    const CategoryScope category(Category::communication);
    return Storage::allocate(std::max<int64_t>(1, 2 * buffers * buffer));
  }();
  struct Round {
    int64_t begin = 0, share = 0;
    Handle carried = {};
  };
  const auto spread = [&](Round& round) {
    round.carried.wait();
    for (const Part& result : results) {
      const Elements all = result.values.part(round.begin, round.share * places);
      hosts.inside->all_gather(all.part(hosts.place() * round.share, round.share), all);
    }
  };
  std::array<Round, 2> rounds;
  // What is under way must not outlive the memory that it works on.
  struct Settle {
    Communicator& across;
    std::array<Round, 2>& rounds;
    int exceptions = std::uncaught_exceptions();
    ~Settle() {
      if (std::uncaught_exceptions() == exceptions) return;
      across.abort("");  // the reason is under way already
      for (Round& round : rounds)
        settle(round.carried);
    }
  } const settle_at_end{*hosts.across, rounds};
  int64_t number = 0;
  for (int64_t done = 0; done < shares; done += most, ++number) {
    Round& round = rounds[static_cast<size_t>(number % 2)];
    round.begin = done * places;
    round.share = std::min(most, shares - done);
    std::vector<Part> sums;
    for (int64_t i = 0; i < buffers; ++i) {
      std::byte* at = staging->data() + (number % 2 * buffers + i) * buffer;
      sums.push_back({host_nodes[static_cast<size_t>(i)], {at, round.share, dtype}});
    }
    hosts.inside->run(sum_of(Collective::reduce_scatter, call_.op,
                             parts_of(parts, round.begin, round.share * places), {}, sums, leaves(),
                             dtype_of_parts()));
    round.carried = hosts.across->start(
        sum_of(Collective::all_reduce, call_.op, std::move(sums), {},
               parts_of(results, round.begin + hosts.place() * round.share, round.share), leaves(),
               dtype));
    if (number > 0) spread(rounds[static_cast<size_t>((number - 1) % 2)]);
  }
  if (number > 0) spread(rounds[static_cast<size_t>((number - 1) % 2)]);
}

// The elements that cannot be shared out evenly go through buffers that can.
void TransportCommunicator::Exchange::all_reduce_rest_by_host(int64_t begin) {
  const int64_t rest = count_ - begin;
  if (rest == 0) return;
  const int64_t places = c_.hosts_->places();
  std::vector<std::vector<std::byte>> memory;
  const auto padded = [&](const Part& part) {
    memory.emplace_back(static_cast<size_t>(places * size_of(part.values.dtype)));
    return Part{part.node, {memory.back().data(), places, part.values.dtype}};
  };
  std::vector<Part> parts;
  std::vector<Part> results;
  for (const Part& part : parts_) {
    parts.push_back(padded(part));
    const Elements from = part.values.part(begin, rest);
    std::memcpy(parts.back().values.data, from.data, static_cast<size_t>(from.bytes()));
  }
  for (const Part& result : results_)
    results.push_back(padded(result));
  all_reduce_by_host(parts, results);
  for (size_t i = 0; i < results.size(); ++i) {
    const Elements to = results_[i].values.part(begin, rest);
    std::memcpy(to.data, results[i].values.data, static_cast<size_t>(to.bytes()));
  }
}

// Pieces of count_ elements, piece r for rank r: within the host each rank adds up the pieces of
// all ranks of its number.
void TransportCommunicator::Exchange::reduce_scatter_by_host() {
  Hosts& hosts = *c_.hosts_;
  const std::vector<Node> host_nodes = nodes_of_host();
  const DType dtype = dtype_of_sums();
  const int64_t bytes = hosts.hosts() * count_ * size_of(dtype);
  const Ref<Storage> staging = [&] {
    const CategoryScope category(Category::communication);
    return Storage::allocate(std::max<int64_t>(1, static_cast<int64_t>(host_nodes.size()) * bytes));
  }();
  std::vector<Part> sums;
  for (const Node node : host_nodes) {
    std::byte* at = staging->data() + static_cast<int64_t>(sums.size()) * bytes;
    sums.push_back({node, {at, hosts.hosts() * count_, dtype}});
  }
  const int64_t together = hosts.places() * count_;
  for (int host = 0; host < hosts.hosts(); ++host) {
    hosts.inside->run(sum_of(Collective::reduce_scatter, call_.op,
                             parts_of(parts_, host * together, together), {},
                             parts_of(sums, host * count_, count_), leaves(), dtype_of_parts()));
  }
  hosts.across->run(sum_of(Collective::reduce_scatter, call_.op, std::move(sums), call_.pending,
                           results_, leaves(), dtype));
}

void TransportCommunicator::Exchange::all_gather_by_host() {
  Hosts& hosts = *c_.hosts_;
  const Ref<Storage> staging = [&] {
    const CategoryScope category(Category::communication);
    return Storage::allocate(hosts.hosts() * call_.in.bytes());
  }();
  const Elements column(staging->data(), hosts.hosts() * count_, dtype_);
  hosts.across->all_gather(call_.in, column);
  const int64_t together = hosts.places() * count_;
  for (int host = 0; host < hosts.hosts(); ++host) {
    hosts.inside->all_gather(column.part(host * count_, count_),
                             call_.out.part(host * together, together));
  }
}

void TransportCommunicator::Exchange::broadcast_by_host() {
  Hosts& hosts = *c_.hosts_;
  const int place = call_.root % hosts.places();
  if (hosts.place() == place) hosts.across->broadcast(call_.out, call_.root / hosts.places());
  hosts.inside->broadcast(call_.out, place);
}

// False where ranks turn to each other directly: means are rounded once, and what goes from or to a
// single rank has no share of the others in it.
bool TransportCommunicator::Exchange::run_by_host() {
  if (!c_.hosts_) return false;
  const bool sum = call_.op != ReduceOp::mean;
  try {
    switch (call_.collective) {
      case Collective::all_reduce: {
        if (!sum) return false;
        if (results_.empty()) return true;
        const int64_t even = count_ - count_ % c_.hosts_->places();
        if (even > 0) all_reduce_by_host(parts_of(parts_, 0, even), parts_of(results_, 0, even));
        all_reduce_rest_by_host(even);
        return true;
      }
      case Collective::reduce_scatter:
        if (sum) reduce_scatter_by_host();
        return sum;
      case Collective::all_gather:
        all_gather_by_host();
        return true;
      case Collective::broadcast:
        broadcast_by_host();
        return true;
      default:
        return false;
    }
  } catch (const CommunicationError& error) {
    c_.fail_by_host(present_, error.what());
  }
}

// One of the two communicators has failed, and knows ranks by the numbers that they have there.
// Which rank of this one is missing is asked once more; then the others, who may wait for this rank
// in either of the two, are told.
void TransportCommunicator::fail_by_host(const Present& present, const std::string& reason) {
  const auto give_up = [&] {
    hosts_->inside->abort(reason);
    hosts_->across->abort(reason);
  };
  constexpr double kNews = 1;  // until it is known that a rank has died
  Control& control = network_->control();
  const double start = clock_seconds();
  std::vector<int> missing;
  while (missing.empty() && !control.verdict(number_) && clock_seconds() - start < kNews) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && !control.fate(ranks_[static_cast<size_t>(r)], number_).empty())
        missing.push_back(r);
    }
    if (missing.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  give_up();
  if (const auto verdict = control.verdict(number_)) raise(*verdict);
  // No rank has gone: those that do not answer, or are elsewhere, are late.
  for (int r = 0; r < size() && missing.empty(); ++r) {
    if (r == rank()) continue;
    const auto answer = control.ask(ranks_[static_cast<size_t>(r)], 0.5);
    if (!answer || answer->first.communicator != number_ ||
        answer->first.sequence != present.sequence)
      missing.push_back(r);
  }
  if (!missing.empty()) report_missing(present, missing, options().timeout_seconds, false);
  fail({reason, false});
}

}  // namespace weft::dist::detail
