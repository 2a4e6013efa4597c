// The ledger: every byte of tensor memory is charged to a category, so that "how much do the
// gradients take on this rank" is a reading, not an estimate.
#pragma once

#include "core/error.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace weft {

enum class Category : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  data,
  other
};
inline constexpr int kCategories = 7;

std::string to_string(Category category);

// Thrown when an allocation would pass the ledger's limit or the machine has no memory left. The
// text lists the ledger.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// Byte counts of one rank. Thread safe. Live tensors count; blocks the allocator keeps for reuse do
// not.
class Ledger {
 public:
  // `limit` in bytes, 0 for none.
  explicit Ledger(int64_t limit = 0) : limit_(limit) {}

  // Throws OutOfMemory if `bytes` more would pass the limit.
  void check_room(Category category, int64_t bytes) const;
  // Adds bytes, or throws OutOfMemory and changes nothing. Threads that charge at once stay within
  // the limit, too.
  void charge(Category category, int64_t bytes);
  void credit(Category category, int64_t bytes);
  void move(Category from, Category to, int64_t bytes);

  int64_t current(Category category) const {
    return slot(category).current.load(std::memory_order_relaxed);
  }
  int64_t peak(Category category) const {
    return slot(category).peak.load(std::memory_order_relaxed);
  }
  int64_t current_total() const { return total_.current.load(std::memory_order_relaxed); }
  int64_t peak_total() const { return total_.peak.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  // Peaks start again from the current counts.
  void reset_peaks();

  // A table of all categories, current and peak.
  std::string report() const;

 private:
  struct Count {
    std::atomic<int64_t> current{0};
    std::atomic<int64_t> peak{0};
    void add(int64_t bytes) {
      raise_peak(current.fetch_add(bytes, std::memory_order_relaxed) + bytes);
    }
    void raise_peak(int64_t now);
  };
  Count& slot(Category category) { return counts_[static_cast<size_t>(category)]; }
  const Count& slot(Category category) const { return counts_[static_cast<size_t>(category)]; }

  std::array<Count, kCategories> counts_;
  Count total_;
  std::atomic<int64_t> limit_;
};

// The ledger that this thread's allocations are charged to: the process's own, unless a LedgerScope
// is open (each thread rank opens one; so do its helper threads).
Ledger& current_ledger();

// Charges this thread to `ledger` for its lifetime. The ledger must outlive every tensor charged to
// it.
class LedgerScope {
 public:
  explicit LedgerScope(Ledger& ledger);
  ~LedgerScope();
  LedgerScope(const LedgerScope&) = delete;
  LedgerScope& operator=(const LedgerScope&) = delete;

 private:
  Ledger* previous_;
};

// The category this thread's allocations fall under: `activations` (what operators produce) by
// default.
Category current_category();

class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

// "1.5 MiB"
std::string format_bytes(int64_t bytes);

}  // namespace weft
