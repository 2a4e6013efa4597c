#include "dist/detail/transport_exchange.h"

#include "core/parallel.h"
#include "dist/detail/combine.h"
#include "dist/detail/fold_plan.h"
#include "dist/tree.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

constexpr int64_t kChunkBytes = int64_t{512} << 10;   // of a slice that is summed
constexpr int64_t kMoveBytes = int64_t{1} << 20;      // of data that are moved only
constexpr int64_t kStagingBytes = int64_t{32} << 20;  // for others' chunks, about

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

bool is_sum(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

}  // namespace

TransportCommunicator::Exchange::Exchange(TransportCommunicator& communicator, Present& present)
    : c_(communicator),
      present_(present),
      call_(present.call),
      slot_(communicator.calls_ % 2),
      pieces_(has_pieces(present.call.collective) ? communicator.size() : 1),
      count_(count_of(present.call)),
      dtype_(dtype_of_call(present.call)) {
  if (call_.collective == Collective::all_to_all) count_ /= size();
  if (nodes()) {
    parts_ = call_.parts;
    results_ = call_.results;
    std::sort(results_.begin(), results_.end(),
              [](const Part& a, const Part& b) { return first_leaf(a.node) < first_leaf(b.node); });
  } else {
    const bool from_root =
        call_.collective == Collective::broadcast || call_.collective == Collective::scatter;
    if (from_root ? rank() == call_.root : call_.collective != Collective::barrier)
      parts_ = {{{0, rank()}, call_.in}};
    if (call_.collective == Collective::all_reduce || scatters() ||
        (call_.collective == Collective::reduce && rank() == call_.root))
      results_ = {{root_of(size()), call_.out}};
  }
  result_dtype_ = nodes() && !results_.empty() ? results_[0].values.dtype : dtype_;
}

const std::byte* TransportCommunicator::Exchange::message(int r) const {
  return r == rank() ? c_.sent_[slot_].data() : c_.received_[slot_][static_cast<size_t>(r)].data();
}

void TransportCommunicator::Exchange::meet() {
  Message& own = c_.sent_[slot_];
  c_.await(present_, c_.sends_[slot_]);  // of the call before the last
  // Results travel beside the parts where they must be the same on all ranks.
  const auto results = nodes() && !scatters() ? results_.size() : size_t{0};
  const size_t head = sizeof(Envelope) + (parts_.size() + results) * sizeof(Node);
  WEFT_CHECK(head <= kMessage, c_.op_name(call_), "expected at most ",
             (kMessage - sizeof(Envelope)) / sizeof(Node), " parts and results, got ",
             parts_.size() + results);
  size_t bytes = head;
  for (const Part& part : parts_)
    bytes += static_cast<size_t>(part.values.bytes());
  const bool inside = bytes <= kMessage;
  const Envelope envelope{present_.contract, present_.sequence, static_cast<int32_t>(parts_.size()),
                          static_cast<int32_t>(results), inside ? 1 : 0};
  std::memcpy(own.data(), &envelope, sizeof envelope);
  auto* at = own.data() + sizeof envelope;
  for (size_t i = 0; i < parts_.size() + results; ++i) {
    const Node node = i < parts_.size() ? parts_[i].node : results_[i - parts_.size()].node;
    std::memcpy(at, &node, sizeof node);
    at += sizeof node;
  }
  if (inside) {
    for (const Part& part : parts_) {
      copy_bytes(at, part.values.data, part.values.bytes());
      at += part.values.bytes();
    }
  }
  c_.meet(present_, inside ? bytes : head);
  for (int r = 0; r < size(); ++r)
    all_inside_ = all_inside_ && this->envelope(r).inside != 0;
}

// Chunks of results go to where the other ranks have the same nodes in the same order.
void TransportCommunicator::Exchange::check_results() {
  for (int r = 0; r < size(); ++r) {
    const Envelope& theirs = envelope(r);
    for (int i = 0; i < theirs.results; ++i) {
      const Node node = nodes_of(r)[theirs.parts + i];
      if (node == results_[static_cast<size_t>(i)].node) continue;
      c_.fail({concat({"[", c_.op_name(call_),
                       "] expected a result for the same nodes on every rank, got none on rank ", r,
                       " for node (", results_[static_cast<size_t>(i)].node.level, ", ",
                       results_[static_cast<size_t>(i)].node.index, "), in ",
                       describe(present_.contract, present_.sequence, c_.name())}),
               true});
    }
  }
}

std::byte* TransportCommunicator::Exchange::inside(int r, int part, int piece) const {
  const Envelope& theirs = envelope(r);
  const size_t head =
      sizeof(Envelope) + static_cast<size_t>(theirs.parts + theirs.results) * sizeof(Node);
  const int64_t at = (int64_t{part} * pieces_ + piece) * count_ * size_of(dtype_);
  return const_cast<std::byte*>(message(r) + head + at);
}

void TransportCommunicator::Exchange::fold(std::vector<Part> inputs,
                                           const std::vector<Part>& targets) const {
  std::vector<Target> places;
  int64_t count = 0;
  for (const Part& target : targets) {
    places.push_back({target.node, {target.values.data}, target.values.dtype});
    count = target.values.count;
  }
  const FoldPlan plan(inputs, places, leaves(), call_.op, call_.op == ReduceOp::mean ? size() : 0,
                      c_.op_name(call_));
  parallel_for(0, count, 32 * kBlock, [&](int64_t begin, int64_t end) { plan.run(begin, end); });
}

void TransportCommunicator::Exchange::fold_inside() {
  if (call_.collective == Collective::reduce && rank() != call_.root) return;
  const int piece = scatters() ? rank() : 0;
  std::vector<Part> inputs;
  for (int r = 0; r < size(); ++r) {
    for (int i = 0; i < envelope(r).parts; ++i) {
      const Node node = nodes() ? nodes_of(r)[i] : Node{0, r};
      inputs.push_back({node, {inside(r, i, piece), count_, dtype_}});
    }
  }
  for (const Part& part : call_.pending)
    inputs.push_back(part);
  fold(std::move(inputs), results_);
}

void TransportCommunicator::Exchange::move_inside() {
  const int64_t bytes = count_ * size_of(dtype_);
  const auto out = [&](int piece) { return call_.out.data + piece * bytes; };
  switch (call_.collective) {
    case Collective::gather:
      if (rank() != call_.root) return;
      [[fallthrough]];
    case Collective::all_gather:
    case Collective::split:
      for (int r = 0; r < size(); ++r)
        copy_bytes(out(r), inside(r, 0, 0), bytes);
      return;
    case Collective::broadcast:
      if (rank() != call_.root) copy_bytes(out(0), inside(call_.root, 0, 0), bytes);
      return;
    case Collective::scatter:
      return copy_bytes(out(0), inside(call_.root, 0, rank()), bytes);
    case Collective::all_to_all:
      for (int r = 0; r < size(); ++r)
        copy_bytes(out(r), inside(r, 0, rank()), bytes);
      return;
    default:
      return;
  }
}

TransportCommunicator::Exchange::Slices TransportCommunicator::Exchange::slices(
    int64_t chunk) const {
  if (scatters()) return {count_, count_ * size(), chunk};
  return {((count_ + size() - 1) / size() + 63) / 64 * 64, count_, chunk};
}

void TransportCommunicator::Exchange::pipeline(int64_t chunks,
                                               const std::function<void(int64_t, size_t)>& start,
                                               const std::function<void(int64_t, size_t)>& finish) {
  for (int64_t c = 0; c < std::min(kDepth, chunks); ++c)
    start(c, static_cast<size_t>(c % kDepth));
  for (int64_t c = 0; c < chunks; ++c) {
    const auto slot = static_cast<size_t>(c % kDepth);
    finish(c, slot);
    if (c + kDepth < chunks) start(c + kDepth, slot);
  }
}

void TransportCommunicator::Exchange::reduce() {
  const bool to_root = call_.collective == Collective::reduce;
  const auto wanted_by = [&](int r) { return !scatters() && (!to_root || r == call_.root); };
  const int64_t size_each = size_of(dtype_);
  int64_t all_parts = 0;
  for (int r = 0; r < size(); ++r)
    all_parts += envelope(r).parts;
  // The same on every rank.
  const int64_t most = kStagingBytes / (kDepth * std::max<int64_t>(all_parts, 1));
  const Slices cut = slices(std::max(kBlock, std::min(kChunkBytes, most) / size_each / 64 * 64));

  // Where what comes lies: for each chunk under way a buffer for each part of the others, and one
  // for a sum that goes to root only.
  const int64_t buffer = cut.chunk * 8;
  const int64_t buffers = all_parts - envelope(rank()).parts + 1;
  if (!c_.staging_ || c_.staging_->bytes() < kDepth * buffers * buffer) {
    const CategoryScope category(Category::communication);
    c_.staging_ = nullptr;
    c_.staging_ = Storage::allocate(kDepth * buffers * buffer);
  }
  const auto staged = [&](size_t slot, int64_t index) {
    return c_.staging_->data() + (static_cast<int64_t>(slot) * buffers + index) * buffer;
  };

  std::array<std::vector<Flight>, kDepth> incoming;
  std::array<std::vector<Flight>, kDepth> outgoing;
  std::array<std::vector<Flight>, kDepth> sums;
  const auto part_at = [&](const Part& part, int64_t element) {
    return part.values.data + element * size_of(part.values.dtype);
  };
  const auto inputs_of = [&](int64_t c, size_t slot) {
    std::vector<Part> inputs;
    const int64_t length = cut.length(rank(), c);
    for (const Part& part : parts_)
      inputs.push_back({part.node, {part_at(part, cut.at(rank(), c)), length, dtype_}});
    int64_t index = 0;
    for (int i = 1; i < size(); ++i) {
      const int r = left(i);
      for (int j = 0; j < envelope(r).parts; ++j) {
        const Node node = nodes() ? nodes_of(r)[j] : Node{0, r};
        inputs.push_back({node, {staged(slot, index++), length, dtype_}});
      }
    }
    for (const Part& part : call_.pending)
      inputs.push_back({part.node, {part_at(part, c * cut.chunk), length, part.values.dtype}});
    return inputs;
  };
  const auto targets_of = [&](int64_t c, size_t slot) {
    const int64_t length = cut.length(rank(), c);
    if (to_root && rank() != call_.root)
      return std::vector<Part>{{root_of(size()), {staged(slot, buffers - 1), length, dtype_}}};
    std::vector<Part> targets;
    for (const Part& part : results_) {
      const int64_t at = scatters() ? c * cut.chunk : cut.at(rank(), c);
      targets.push_back({part.node, {part_at(part, at), length, part.values.dtype}});
    }
    return targets;
  };

  const auto start = [&](int64_t c, size_t slot) {
    c_.await(present_, sums[slot]);
    c_.await(present_, outgoing[slot]);
    incoming[slot].clear();
    outgoing[slot].clear();
    sums[slot].clear();
    const int64_t own = cut.length(rank(), c) * size_each;
    int64_t index = 0;
    for (int i = 1; i < size(); ++i) {
      const int r = left(i);
      for (int j = 0; j < envelope(r).parts; ++j, ++index) {
        if (own > 0) incoming[slot].push_back(c_.recv(r, Channel::data, staged(slot, index), own));
      }
    }
    for (int i = 1; i < size(); ++i) {
      const int r = right(i);
      const int64_t bytes = cut.length(r, c) * size_each;
      for (const Part& part : parts_) {
        if (bytes > 0)
          outgoing[slot].push_back(c_.send(r, Channel::data, part_at(part, cut.at(r, c)), bytes));
      }
    }
  };
  const auto finish = [&](int64_t c, size_t slot) {
    c_.await(present_, incoming[slot]);
    const std::vector<Part> targets = targets_of(c, slot);
    const int64_t own = cut.length(rank(), c);
    if (own > 0) fold(inputs_of(c, slot), targets);
    if (scatters()) return;
    // A sum may arrive where a part lies that goes out; that must have gone.
    c_.await(present_, outgoing[slot]);
    for (int i = 1; i < size() && wanted_by(rank()); ++i) {
      const int r = left(i);
      const int64_t length = cut.length(r, c);
      for (const Part& part : results_) {
        if (length > 0)
          sums[slot].push_back(c_.recv(r, Channel::results, part_at(part, cut.at(r, c)),
                                       length * size_of(part.values.dtype)));
      }
    }
    for (int i = 1; i < size() && own > 0; ++i) {
      if (!wanted_by(right(i))) continue;
      for (const Part& target : targets)
        sums[slot].push_back(
            c_.send(right(i), Channel::results, target.values.data, target.values.bytes()));
    }
  };
  // What does not add up is found before anything moves.
  std::vector<Part> nothing = targets_of(0, 0);
  for (Part& part : nothing)
    part.values.count = 0;
  fold(inputs_of(0, 0), nothing);
  pipeline(cut.chunks(), start, finish);
  for (size_t slot = 0; slot < kDepth; ++slot) {
    c_.await(present_, sums[slot]);
    c_.await(present_, outgoing[slot]);
  }
}

// Root hands out a slice to each, and each passes its own on to the others: root's link carries
// less than twice the data, whatever the number of ranks.
void TransportCommunicator::Exchange::broadcast() {
  const int root = call_.root;
  const int64_t size_each = size_of(dtype_);
  const Slices cut = slices(kMoveBytes / size_each);
  std::array<std::vector<Flight>, kDepth> own;
  std::array<std::vector<Flight>, kDepth> others;
  const auto at = [&](int r, int64_t c) { return call_.out.data + cut.at(r, c) * size_each; };
  const auto bytes = [&](int r, int64_t c) { return cut.length(r, c) * size_each; };
  const auto start = [&](int64_t c, size_t slot) {
    c_.await(present_, others[slot]);
    own[slot].clear();
    others[slot].clear();
    for (int i = 1; i < size(); ++i) {
      if (rank() == root) {
        const int r = right(i);
        if (bytes(r, c) > 0)
          others[slot].push_back(c_.send(r, Channel::data, at(r, c), bytes(r, c)));
        if (bytes(root, c) > 0)
          others[slot].push_back(c_.send(r, Channel::results, at(root, c), bytes(root, c)));
      } else {
        const int r = left(i);
        if (bytes(r, c) > 0)
          others[slot].push_back(c_.recv(r, Channel::results, at(r, c), bytes(r, c)));
        if (r == root && bytes(rank(), c) > 0)
          own[slot].push_back(c_.recv(root, Channel::data, at(rank(), c), bytes(rank(), c)));
      }
    }
  };
  const auto finish = [&](int64_t c, size_t slot) {
    if (own[slot].empty()) return;
    c_.await(present_, own[slot]);
    for (int i = 1; i < size(); ++i) {
      if (right(i) != root)
        others[slot].push_back(
            c_.send(right(i), Channel::results, at(rank(), c), bytes(rank(), c)));
    }
  };
  pipeline(cut.chunks(), start, finish);
  for (std::vector<Flight>& flights : others)
    c_.await(present_, flights);
}

void TransportCommunicator::Exchange::move(const std::vector<Move>& out,
                                           const std::vector<Move>& in) {
  int64_t most = 0;
  for (const auto* moves : {&out, &in}) {
    for (const Move& move : *moves)
      most = std::max(most, move.bytes);
  }
  std::array<std::vector<Flight>, kDepth> flights;
  const auto start = [&](int64_t c, size_t slot) {
    flights[slot].clear();
    const auto length = [&](const Move& move) {
      return std::min(kMoveBytes, move.bytes - c * kMoveBytes);
    };
    for (const Move& move : in) {
      if (length(move) > 0)
        flights[slot].push_back(
            c_.recv(move.peer, Channel::data, move.data + c * kMoveBytes, length(move)));
    }
    for (const Move& move : out) {
      if (length(move) > 0)
        flights[slot].push_back(
            c_.send(move.peer, Channel::data, move.data + c * kMoveBytes, length(move)));
    }
  };
  pipeline((most + kMoveBytes - 1) / kMoveBytes, start,
           [&](int64_t, size_t slot) { c_.await(present_, flights[slot]); });
}

void TransportCommunicator::Exchange::move() {
  const int64_t bytes = count_ * size_of(dtype_);
  const auto piece = [&](const Elements& values, int r) { return values.data + r * bytes; };
  std::vector<Move> out;
  std::vector<Move> in;
  const bool on_root = rank() == call_.root;
  for (int i = 1; i < size(); ++i) {
    const int to = right(i);
    const int from = left(i);
    switch (call_.collective) {
      case Collective::all_gather:
      case Collective::split:
        out.push_back({to, call_.in.data, bytes});
        in.push_back({from, piece(call_.out, from), bytes});
        break;
      case Collective::gather:
        if (on_root) in.push_back({from, piece(call_.out, from), bytes});
        if (to == call_.root) out.push_back({to, call_.in.data, bytes});
        break;
      case Collective::scatter:
        if (on_root) out.push_back({to, piece(call_.in, to), bytes});
        if (from == call_.root) in.push_back({from, call_.out.data, bytes});
        break;
      default:  // all_to_all
        out.push_back({to, piece(call_.in, to), bytes});
        in.push_back({from, piece(call_.out, from), bytes});
    }
  }
  // This rank's own piece stays here.
  if (call_.collective == Collective::all_to_all) {
    copy_bytes(piece(call_.out, rank()), piece(call_.in, rank()), bytes);
  } else if (call_.collective == Collective::scatter) {
    if (on_root) copy_bytes(call_.out.data, piece(call_.in, rank()), bytes);
  } else if (call_.collective != Collective::gather || on_root) {
    copy_bytes(piece(call_.out, rank()), call_.in.data, bytes);
  }
  move(out, in);
}

void TransportCommunicator::Exchange::run() {
  meet();
  const bool sums = is_sum(call_.collective);
  if (sums && nodes() && !scatters()) check_results();
  if (all_inside_) return sums ? fold_inside() : move_inside();
  if (run_by_host()) return;
  if (sums) return reduce();
  if (call_.collective == Collective::broadcast) return broadcast();
  move();
}

}  // namespace weft::dist::detail
