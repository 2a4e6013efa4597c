// What the communicators of one rank share: the job, and how its ranks reach each other's memory.
#pragma once

#include "core/storage.h"
#include "dist/detail/board.h"
#include "dist/detail/whereabouts.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace weft::dist::detail {

// One object a rank. Thread safe. Ranks are those of the job.
class World {
 public:
  virtual ~World() = default;

  virtual const char* backend() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Whereabouts& whereabouts(int rank) = 0;
  // "" while the rank is alive; else what became of it: "died (process 4711)".
  virtual std::string fate(int rank) = 0;

  // A number by which other ranks find this memory; Offer::kStaged if only this rank can reach it.
  virtual uint64_t address_of(const std::byte* data, int64_t bytes) const = 0;
  virtual std::byte* at(int rank, uint64_t address) const = 0;
  // Memory that address_of() knows: zeroed, aligned to 64, not charged to a ledger.
  virtual std::byte* obtain(size_t bytes) = 0;
  virtual void give_back(std::byte* memory, size_t bytes) = 0;

  // A new board, which stays until all its holders have released it, and the number by which
  // board_of() finds it from any rank.
  virtual uint64_t make_board(int size) = 0;
  virtual Board& board_of(int rank, uint64_t made) = 0;

  // The first verdict that this rank has met on any board: what it gives up with on others.
  void remember(const std::string& verdict, bool contract_error) {
    const std::lock_guard lock(verdict_mutex_);
    if (!verdict_.empty()) return;
    verdict_ = verdict;
    contract_error_ = contract_error;
  }
  std::string remembered(bool& contract_error) const {
    const std::lock_guard lock(verdict_mutex_);
    contract_error = contract_error_;
    return verdict_;
  }

 private:
  mutable std::mutex verdict_mutex_;
  std::string verdict_;
  bool contract_error_ = false;
};

}  // namespace weft::dist::detail
