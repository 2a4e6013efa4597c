#include "dist/detail/board_exchange.h"

#include "core/parallel.h"
#include "dist/detail/board_wait.h"
#include "dist/detail/combine.h"
#include "dist/detail/fold_plan.h"
#include "dist/tree.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

constexpr int64_t kCopyGrain = int64_t{256} << 10;

void copy_in_parallel(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  parallel_for(0, bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

BoardCommunicator::Exchange::Exchange(BoardCommunicator& communicator, Present& present)
    : c_(communicator),
      present_(present),
      call_(present.call),
      slot_(communicator.calls_++ % 2),
      pieces_(has_pieces(present.call.collective) ? communicator.size() : 1),
      count_(count_of(present.call)),
      dtype_(dtype_of_call(present.call)) {
  if (call_.collective == Collective::all_to_all) count_ /= size();
  if (!call_.results.empty()) result_dtype_ = call_.results[0].values.dtype;
  if (nodes()) {
    parts_ = call_.parts;
  } else if (call_.collective == Collective::broadcast || call_.collective == Collective::scatter) {
    if (rank() == call_.root) parts_ = {{{0, rank()}, call_.in}};
  } else if (call_.collective != Collective::barrier) {
    parts_ = {{{0, rank()}, call_.in}};
  }
}

void BoardCommunicator::Exchange::post() {
  Slot& own = c_.board_.seat(rank()).slots[slot_];
  own.contract = present_.contract;
  own.parts = static_cast<int32_t>(parts_.size());
  // Results that others write to; plain reductions write them where the parts are.
  const bool offers_results = nodes() && call_.collective == Collective::all_reduce;
  own.results = offers_results ? static_cast<int32_t>(call_.results.size()) : 0;

  int64_t bytes = 0;
  for (const Part& part : parts_)
    bytes += part.values.bytes();
  const size_t total = static_cast<size_t>(own.parts + own.results);
  // A list of offers is memory of this rank's, which others must be done with before it goes on.
  own.in_data = total <= Slot::kOffers && bytes <= kInlineBytes &&
                own.results * count_ * size_of(result_dtype_) <= kInlineBytes;
  if (own.in_data && bytes > 0) {
    std::byte* to = own.data.data();
    for (const Part& part : parts_) {
      std::memcpy(to, part.values.data, static_cast<size_t>(part.values.bytes()));
      to += part.values.bytes();
    }
  }

  Offer* offers = own.offers.data();
  if (total > Slot::kOffers) {
    WEFT_CHECK(total * sizeof(Offer) <= kListBytes, c_.op_name(call_), "expected at most ",
               kListBytes / sizeof(Offer), " parts and results, got ", total);
    std::byte* list = c_.staging() + slot_ * kListBytes;
    own.list = c_.world_->address_of(list, kListBytes);
    offers = reinterpret_cast<Offer*>(list);
  }
  bool staged = false;
  for (size_t i = 0; i < total; ++i) {
    const Part& part = i < parts_.size() ? parts_[i] : call_.results[i - parts_.size()];
    offers[i] = {part.node, c_.world_->address_of(part.values.data, part.values.bytes())};
    staged = staged || offers[i].address == Offer::kStaged;
  }
  if (staged && (!own.in_data || nodes()))
    own.staging = c_.world_->address_of(c_.staging() + 2 * kListBytes, kWindowBytes);
}

void BoardCommunicator::Exchange::take_offers() {
  offers_.resize(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const Slot& from = slot(r);
    const auto total = static_cast<size_t>(from.parts + from.results);
    const Offer* offers = from.offers.data();
    if (total > Slot::kOffers)
      offers = reinterpret_cast<const Offer*>(
          c_.world_->at(c_.ranks_[static_cast<size_t>(r)], from.list));
    offers_[static_cast<size_t>(r)] = offers;
    for (size_t i = 0; i < total; ++i)
      staged_ = staged_ || offers[i].address == Offer::kStaged;
  }
}

int64_t BoardCommunicator::Exchange::chunk() const {
  int64_t most = 1;
  for (int r = 0; r < size(); ++r)
    most = std::max<int64_t>(most, slot(r).parts * int64_t{pieces_} + slot(r).results);
  const int64_t element = std::max(size_of(dtype_), size_of(result_dtype_));
  const int64_t elements = static_cast<int64_t>(kWindowBytes) / (most * element) / 16 * 16;
  WEFT_CHECK(elements > 0, c_.op_name(call_), "expected at most ", kWindowBytes / (16 * 8),
             " buffers in memory that ranks cannot reach, got ", most);
  return elements;
}

std::byte* BoardCommunicator::Exchange::window_at(int r, int64_t buffer, const Round& round) const {
  const int64_t element = std::max(size_of(dtype_), size_of(result_dtype_));
  return c_.world_->at(c_.ranks_[static_cast<size_t>(r)], slot(r).staging) +
         buffer * round.chunk * element;
}

std::byte* BoardCommunicator::Exchange::part_at(int r, int part, int piece,
                                                const Round& round) const {
  const int64_t size = size_of(dtype_);
  const int64_t buffer = int64_t{part} * pieces_ + piece;
  if (round.in_slots) {
    const std::byte* data = slot(r).data.data() + buffer * count_ * size;
    return const_cast<std::byte*>(data);
  }
  const Offer& offer = offers_[static_cast<size_t>(r)][part];
  if (offer.address == Offer::kStaged) return window_at(r, buffer, round);
  return c_.world_->at(c_.ranks_[static_cast<size_t>(r)], offer.address) +
         (piece * count_ + round.begin) * size;
}

std::byte* BoardCommunicator::Exchange::result_at(int r, int result, const Round& round) const {
  const int parts = slot(r).parts;
  const Offer& offer = offers_[static_cast<size_t>(r)][parts + result];
  if (offer.address == Offer::kStaged)
    return window_at(r, int64_t{parts} * pieces_ + result, round);
  return c_.world_->at(c_.ranks_[static_cast<size_t>(r)], offer.address) +
         round.begin * size_of(result_dtype_);
}

void BoardCommunicator::Exchange::copy_in(const Round& round) {
  const int64_t size = size_of(dtype_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (offers_[static_cast<size_t>(rank())][i].address != Offer::kStaged) continue;
    for (int piece = 0; piece < pieces_; ++piece) {
      copy_in_parallel(part_at(rank(), static_cast<int>(i), piece, round),
                       parts_[i].values.data + (piece * count_ + round.begin) * size,
                       round.size() * size);
    }
  }
}

void BoardCommunicator::Exchange::copy_out(const Round& round) {
  const bool in_place = call_.collective == Collective::all_reduce ||
                        (call_.collective == Collective::reduce && rank() == call_.root);
  if (!in_place) return;
  const Offer* own = offers_[static_cast<size_t>(rank())];
  if (!nodes()) {
    if (own[0].address == Offer::kStaged) {
      const int64_t size = size_of(dtype_);
      copy_in_parallel(call_.out.data + round.begin * size, part_at(rank(), 0, 0, round),
                       round.size() * size);
    }
    return;
  }
  const int64_t size = size_of(result_dtype_);
  for (size_t i = 0; i < call_.results.size(); ++i) {
    if (own[parts_.size() + i].address != Offer::kStaged) continue;
    copy_in_parallel(call_.results[i].values.data + round.begin * size,
                     result_at(rank(), static_cast<int>(i), round), round.size() * size);
  }
}

std::vector<Part> BoardCommunicator::Exchange::inputs(int piece, const Round& round) const {
  std::vector<Part> list;
  for (int r = 0; r < size(); ++r) {
    for (int i = 0; i < slot(r).parts; ++i) {
      list.push_back({offers_[static_cast<size_t>(r)][i].node,
                      {part_at(r, i, piece, round), round.size(), dtype_}});
    }
  }
  return list;
}

void BoardCommunicator::Exchange::refuse(const std::string& what) {
  c_.fail(concat({"[", c_.op_name(call_), "] ", what, ", in ",
                  describe(present_.contract, present_.sequence, c_.name())}),
          true);
}

// all_reduce and reduce. In slots: every rank that needs the result adds for itself. In memory:
// each adds its slice and writes it for everybody.
void BoardCommunicator::Exchange::fold_for_all(const Round& round) {
  const bool to_root = call_.collective == Collective::reduce;
  if (to_root && round.in_slots && rank() != call_.root) return;
  std::vector<Target> targets;
  if (nodes()) {
    for (const Part& result : call_.results)
      targets.push_back({result.node, {}, result_dtype_});
  } else {
    targets.push_back({root_of(size()), {}, dtype_});
  }
  const auto place = [&](int r, size_t target) -> std::byte* {
    if (!nodes()) return part_at(r, 0, 0, round);
    for (int j = 0; j < slot(r).results; ++j) {
      if (offers_[static_cast<size_t>(r)][slot(r).parts + j].node == targets[target].node)
        return result_at(r, j, round);
    }
    refuse(
        concat({"expected a result for the same nodes on every rank, got none on rank ", r,
                " for node (", targets[target].node.level, ", ", targets[target].node.index, ")"}));
  };
  for (size_t t = 0; t < targets.size(); ++t) {
    if (round.in_slots) {
      targets[t].places = {nodes() ? call_.results[t].values.data : call_.out.data};
      continue;
    }
    for (int r = 0; r < size(); ++r) {
      if (!to_root || r == call_.root) targets[t].places.push_back(place(r, t));
    }
  }
  int64_t begin = 0;
  int64_t end = round.size();
  if (!round.in_slots) {
    const int64_t slice = ((end + size() - 1) / size() + 63) / 64 * 64;
    begin = std::min(end, slice * rank());
    end = std::min(end, begin + slice);
  }
  const FoldPlan plan(inputs(0, round), targets, nodes() ? call_.leaves : size(), call_.op,
                      call_.op == ReduceOp::mean ? size() : 0, c_.op_name(call_));
  parallel_for(begin, end, 32 * kBlock, [&](int64_t from, int64_t to) { plan.run(from, to); });
}

// reduce_scatter: the sum of this rank's piece, for itself.
void BoardCommunicator::Exchange::fold_own_piece(const Round& round) {
  std::vector<Part> list = inputs(rank(), round);
  std::vector<Target> targets;
  if (nodes()) {
    for (const Part& part : call_.pending)
      list.push_back({part.node, part.values.part(round.begin, round.size())});
    for (const Part& part : call_.results) {
      targets.push_back(
          {part.node, {part.values.data + round.begin * size_of(result_dtype_)}, result_dtype_});
    }
  } else {
    targets.push_back({root_of(size()), {call_.out.data + round.begin * size_of(dtype_)}, dtype_});
  }
  const FoldPlan plan(list, targets, nodes() ? call_.leaves : size(), call_.op,
                      call_.op == ReduceOp::mean ? size() : 0, c_.op_name(call_));
  parallel_for(0, round.size(), 32 * kBlock, [&](int64_t from, int64_t to) { plan.run(from, to); });
}

void BoardCommunicator::Exchange::work(const Round& round) {
  const int64_t size_each = size_of(dtype_);
  const auto out = [&](int piece) {
    return call_.out.data + (piece * count_ + round.begin) * size_each;
  };
  const int64_t bytes = round.size() * size_each;
  switch (call_.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return fold_for_all(round);
    case Collective::reduce_scatter:
      return fold_own_piece(round);
    case Collective::gather:
      if (rank() != call_.root) return;
      [[fallthrough]];
    case Collective::all_gather:
    case Collective::split:
      // Each begins with its right neighbour, so that not all read from one rank's memory at once.
      for (int i = 1; i <= size(); ++i) {
        const int r = (rank() + i) % size();
        copy_in_parallel(
            out(r), r == rank() ? call_.in.data + round.begin * size_each : part_at(r, 0, 0, round),
            bytes);
      }
      return;
    case Collective::broadcast:
      if (rank() != call_.root) copy_in_parallel(out(0), part_at(call_.root, 0, 0, round), bytes);
      return;
    case Collective::scatter:
      return copy_in_parallel(out(0), part_at(call_.root, 0, rank(), round), bytes);
    case Collective::all_to_all:
      for (int i = 1; i <= size(); ++i) {
        const int r = (rank() + i) % size();
        copy_in_parallel(out(r), part_at(r, 0, rank(), round), bytes);
      }
      return;
    case Collective::barrier:
    case Collective::send:
    case Collective::recv:
      return;
  }
}

void BoardCommunicator::Exchange::run() {
  post();
  c_.arrive();
  c_.await_all(present_);
  c_.compare(present_, slot_);
  for (int r = 0; r < size(); ++r)
    in_slots_ = in_slots_ && slot(r).in_data != 0;
  if (in_slots_) {
    take_offers();
    return work(whole());
  }
  // From here on this rank looks at memory that another could free if it gave up.
  struct Touching {
    explicit Touching(BoardCommunicator& communicator) : c(communicator) { c.begin_touching(); }
    ~Touching() { c.end_touching(); }
    BoardCommunicator& c;
  };
  {
    const Touching touching(c_);
    take_offers();
    if (!staged_) work(whole());
  }
  if (!staged_) {
    c_.arrive();
    c_.await_all(present_);
    return;
  }
  const int64_t step = chunk();
  for (int64_t begin = 0; begin < count_; begin += step) {
    const Round round{begin, std::min(count_, begin + step), step, false};
    copy_in(round);
    c_.arrive();
    c_.await_all(present_);
    {
      const Touching touching(c_);
      work(round);
    }
    c_.arrive();
    c_.await_all(present_);
    copy_out(round);
  }
}

}  // namespace weft::dist::detail
