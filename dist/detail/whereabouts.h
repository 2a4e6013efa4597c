// Where a rank is: the call it is in or came from last, readable by all ranks of its job at any
// time.
#pragma once

#include "dist/detail/contract.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace weft::dist::detail {

class Whereabouts {
 public:
  enum class State : uint64_t { nowhere, inside, after };
  struct Snapshot {
    State state = State::nowhere;
    uint64_t communicator = 0;  // a number the job knows it by
    int64_t sequence = 0;
    double since = 0;  // clock_seconds()
    std::string call;  // described
  };

  // One thread writes at a time; a second one of the same rank waits its turn only as long as the
  // first takes to write.
  void enter(const Contract& contract, int64_t sequence, const std::string& communicator,
             uint64_t communicator_number);
  void leave();

  // What was written last; nowhere if the writer does not let go of it.
  Snapshot read() const;

 private:
  static constexpr size_t kNameWords = 12;
  static constexpr size_t kContractWords = sizeof(Contract) / 8;
  struct Record {
    State state;
    uint64_t communicator;
    int64_t sequence;
    double since;
    Contract contract;
    std::array<char, kNameWords * 8> name;
  };
  static constexpr size_t kWords = sizeof(Record) / 8;
  static_assert(sizeof(Record) == kWords * 8);

  void lock();
  void unlock();

  // Odd while it is written. The words are atomic because readers come at any time.
  alignas(64) std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace weft::dist::detail
