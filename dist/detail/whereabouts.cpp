#include "dist/detail/whereabouts.h"

#include "dist/recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::dist::detail {

void Whereabouts::lock() {
  for (;;) {
    uint64_t version = version_.load(std::memory_order_relaxed);
    if (version % 2 == 0 &&
        version_.compare_exchange_weak(version, version + 1, std::memory_order_acq_rel)) {
      return;
    }
  }
}

void Whereabouts::unlock() {
  version_.fetch_add(1, std::memory_order_acq_rel);
}

void Whereabouts::enter(const Contract& contract, int64_t sequence, const std::string& communicator,
                        uint64_t communicator_number) {
  Record record{};
  record.state = State::inside;
  record.communicator = communicator_number;
  record.sequence = sequence;
  record.since = clock_seconds();
  record.contract = contract;
  std::memcpy(record.name.data(), communicator.data(),
              std::min(communicator.size(), record.name.size() - 1));
  const auto words = std::bit_cast<std::array<uint64_t, kWords>>(record);
  lock();
  for (size_t i = 0; i < kWords; ++i)
    words_[i].store(words[i], std::memory_order_release);
  unlock();
}

void Whereabouts::leave() {
  lock();
  words_[offsetof(Record, state) / 8].store(static_cast<uint64_t>(State::after),
                                            std::memory_order_release);
  words_[offsetof(Record, since) / 8].store(std::bit_cast<uint64_t>(clock_seconds()),
                                            std::memory_order_release);
  unlock();
}

Whereabouts::Snapshot Whereabouts::read() const {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if (before % 2 == 1) continue;
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < kWords; ++i)
      words[i] = words_[i].load(std::memory_order_acquire);
    if (version_.load(std::memory_order_acquire) != before) continue;
    const auto record = std::bit_cast<Record>(words);
    Snapshot snapshot{record.state, record.communicator, record.sequence, record.since, ""};
    if (record.state != State::nowhere)
      snapshot.call = describe(record.contract, record.sequence, record.name.data());
    return snapshot;
  }
  return {};
}

}  // namespace weft::dist::detail
