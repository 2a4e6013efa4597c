// Storage: a counted run of bytes that tensors view. It knows the ledger and category it is charged
// to, and a version that in-place changes bump.
#pragma once

#include "core/device.h"
#include "core/function.h"
#include "core/ledger.h"
#include "core/ref.h"

#include <atomic>
#include <cstdint>

namespace weft {

class Storage final : public RefCounted {
 public:
  // `bytes` of uninitialised memory from the caching allocator, charged to this thread's ledger and
  // category.
  static Ref<Storage> allocate(int64_t bytes);
  // Memory owned by somebody else (a mapped file, a shared segment); `release` runs when the last
  // view goes. Not charged.
  static Ref<Storage> wrap(void* data, int64_t bytes, Function<void()> release);
  // The same, charged to this thread's ledger and category, as memory that was made for this
  // storage is. Where the ledger refuses, `release` has run.
  static Ref<Storage> adopt(void* data, int64_t bytes, Function<void()> release);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  Category category() const { return category_; }
  // Charges these bytes to another category from now on.
  void recharge(Category category);

  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Storage(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~Storage() override = default;
  void destroy() override;

  std::byte* data_;
  int64_t bytes_;
  Ledger* ledger_ = nullptr;  // null when not charged
  Function<void()>* release_ = nullptr;
  std::atomic<uint32_t> version_{0};
  Category category_ = Category::other;
  Device device_ = cpu;
};

}  // namespace weft
