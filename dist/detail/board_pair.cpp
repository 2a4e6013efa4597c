// send and recv on the board: a channel for each ordered pair of ranks.
#include "dist/detail/board_wait.h"
#include "dist/detail/verdict_text.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {

void BoardCommunicator::exchange_pair(Present& present) {
  const Call& call = present.call;
  const bool sends = call.collective == Collective::send;
  const int peer = call.root;
  Channel& channel = sends ? board_.channel(rank(), peer) : board_.channel(peer, rank());
  Channel::Half& own = sends ? channel.sender : channel.receiver;
  Channel::Half& other = sends ? channel.receiver : channel.sender;
  const Elements& values = sends ? call.in : call.out;
  const int64_t bytes = values.bytes();
  const auto calls = static_cast<uint64_t>(present.sequence);
  const size_t slot = calls % 2;

  own.contracts[slot] = present.contract;
  if (sends) {
    channel.in_data[slot] = bytes <= kChannelBytes;
    channel.addresses[slot] = world_->address_of(values.data, bytes);
    if (channel.in_data[slot]) {
      if (bytes > 0) std::memcpy(channel.data.data(), values.data, static_cast<size_t>(bytes));
    } else if (channel.addresses[slot] == Offer::kStaged) {
      channel.staging[slot] = world_->address_of(staging() + 2 * kListBytes, kWindowBytes);
    }
  }
  const auto announce = [&](std::atomic<uint64_t>& counter, uint64_t value) {
    counter.store(value, std::memory_order_seq_cst);
    board_.wake();
  };
  const auto await_counter = [&](std::atomic<uint64_t>& counter, uint64_t value) {
    const auto ready = [&] { return counter.load(std::memory_order_seq_cst) >= value; };
    await(present, ready, [&](int r) { return r == peer && !ready(); });
  };
  announce(own.posted, calls + 1);
  await_counter(other.posted, calls + 1);
  const Contract& theirs = other.contracts[slot];
  const std::string text = sends ? pair_mismatch_text(present.contract, rank(), theirs, peer,
                                                      ranks_, present.sequence, name())
                                 : pair_mismatch_text(theirs, peer, present.contract, rank(),
                                                      ranks_, present.sequence, name());
  if (!text.empty()) fail(text, true);

  // Chunks: one where the receiver can reach the memory, windows full of it where not.
  const bool staged = !channel.in_data[slot] && channel.addresses[slot] == Offer::kStaged;
  const int64_t step = staged ? static_cast<int64_t>(kWindowBytes) : std::max<int64_t>(bytes, 1);
  uint64_t& chunks = (sends ? chunks_sent_ : chunks_received_)[static_cast<size_t>(peer)];
  const int sender = ranks_[static_cast<size_t>(sends ? rank() : peer)];
  for (int64_t begin = 0; begin < std::max<int64_t>(bytes, 1); begin += step) {
    const auto length = static_cast<size_t>(std::min(bytes - begin, step));
    ++chunks;
    if (sends) {
      if (staged) std::memcpy(staging() + 2 * kListBytes, values.data + begin, length);
      announce(channel.filled, chunks);
      await_counter(channel.taken, chunks);
    } else {
      await_counter(channel.filled, chunks);
      begin_touching();
      const std::byte* from = channel.in_data[slot] ? channel.data.data()
                              : staged              ? world_->at(sender, channel.staging[slot])
                                                    : world_->at(sender, channel.addresses[slot]);
      if (length > 0) std::memcpy(values.data + begin, from, length);
      end_touching();
      announce(channel.taken, chunks);
    }
  }
}

}  // namespace weft::dist::detail
