// The board: one piece of memory that all ranks of a communicator reach, through which they meet.
// Ordinary memory for ranks that are threads, shared memory for processes: it holds no pointers.
//
// Every rank has a seat. To take part in a collective it writes what it calls, and where its data
// are, into one of the seat's two slots, then counts its arrival up. Whoever sees all ranks arrive
// may read all slots. A slot is written again two collectives later; by then all have arrived at
// the one between, so nobody reads it any more: that is why two suffice, and one arrival a phase.
#pragma once

#include "dist/detail/contract.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace weft::dist::detail {

// Contributions of up to this many bytes travel in the slot itself; what is sent to one rank, in
// the channel.
inline constexpr int64_t kInlineBytes = 4096;
inline constexpr int64_t kChannelBytes = 1024;

// A part or result that a rank offers to others.
struct Offer {
  static constexpr uint64_t kStaged = ~uint64_t{0};
  Node node;
  uint64_t address = kStaged;  // as World::address_of gives it
};

struct alignas(64) Slot {
  static constexpr size_t kOffers = 16;

  Contract contract;
  uint64_t staging;  // address of this rank's staging memory, if one of its offers is staged
  uint64_t list;     // address of the offers, if they are more than kOffers
  int32_t parts;     // the first offers
  int32_t results;   // the offers behind them
  int32_t in_data;   // 1: the parts' elements are in `data`, one part after the other
  std::array<Offer, kOffers> offers;
  alignas(64) std::array<std::byte, kInlineBytes> data;
};

struct alignas(64) Seat {
  enum State : uint32_t { here, left };

  std::atomic<uint64_t> arrived;  // phases, of this communicator, that this rank has come to
  // Set while this rank may touch others' memory, so that none of them gives up and frees it.
  std::atomic<uint32_t> busy;
  std::atomic<uint32_t> state;
  std::array<Slot, 2> slots;
};

// From one rank to another: send and recv. Both sides post their contract, two calls deep as above.
struct alignas(64) Channel {
  struct Half {
    std::atomic<uint64_t> posted;  // calls
    std::array<Contract, 2> contracts;
  };
  Half sender;
  alignas(64) Half receiver;
  alignas(64) std::atomic<uint64_t> filled;  // chunks, over all calls
  std::atomic<uint64_t> taken;
  std::array<uint64_t, 2> addresses;  // of the data, or Offer::kStaged
  std::array<uint64_t, 2> staging;
  std::array<int32_t, 2> in_data;
  alignas(64) std::array<std::byte, kChannelBytes> data;
};

class alignas(64) Board {
 public:
  static constexpr size_t kVerdict = 4096;

  // Bytes of a board for `size` ranks.
  static size_t bytes(int size);
  // Makes a board in zeroed memory, aligned to 64. `number` tells it from others of the job.
  static Board* make(void* memory, int size, uint64_t number);

  Seat& seat(int rank) { return seats()[rank]; }
  Channel& channel(int from, int to) { return channels()[from * size_ + to]; }
  int size() const { return size_; }
  uint64_t number() const { return number_; }

  // Whether all ranks have come to a phase.
  bool all_at(uint64_t phase);

  // The first verdict stays; others are dropped. Wakes everybody.
  void decide(const std::string& verdict, bool contract_error);
  bool decided() const { return decided_.load(std::memory_order_seq_cst) != 0; }
  // The verdict and its kind; waits for whoever is writing it, a second at most.
  std::string verdict(bool& contract_error) const;

  // Sleeps until wake(), 20 ms at most, unless `ready` holds by then. wake() costs nothing while
  // nobody sleeps; call it after a change that was stored with memory_order_seq_cst.
  template <class Ready>
  void sleep(const Ready& ready) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = signal_.load(std::memory_order_seq_cst);
    if (!ready() && !decided()) wait_for_signal(seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  bool has_sleepers() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  void wake() {
    if (has_sleepers()) signal();
  }

  // Ranks that still hold this board: the last to let go of it returns true.
  bool release() { return holders_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool held() const { return holders_.load(std::memory_order_acquire) > 0; }

 private:
  Seat* seats() { return reinterpret_cast<Seat*>(this + 1); }
  Channel* channels() { return reinterpret_cast<Channel*>(seats() + size_); }
  void wait_for_signal(uint32_t seen);
  void signal();

  int32_t size_;
  std::atomic<int32_t> holders_;
  uint64_t number_;
  alignas(64) std::atomic<uint32_t> signal_;
  std::atomic<uint32_t> sleepers_;
  alignas(64) std::atomic<uint32_t> decided_;  // 1: being written, 2: written
  uint32_t contract_error_;
  std::array<char, kVerdict> verdict_;
};

}  // namespace weft::dist::detail
