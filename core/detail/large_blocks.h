// Large blocks of CPU memory, which are few and of many sizes: one reserved range of addresses in
// which neighbours that are free join. A step's gradients and its activations then use the same
// memory in turn, where lists by size would hold each for its own kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace weft::detail {

class LargeBlocks {
 public:
  // Smaller ones are for lists by size.
  static constexpr int64_t kLeast = int64_t{1} << 20;

  // Reserves `span` bytes of addresses, none of memory. Where the system refuses, every allocation
  // gives null.
  explicit LargeBlocks(int64_t span);
  ~LargeBlocks();
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  // At least `bytes`, aligned to a page; null where addresses or memory are used up. Thread safe.
  void* allocate(int64_t bytes);
  // Gives back what allocate(bytes) returned, from any thread.
  void free(void* block, int64_t bytes) noexcept;
  bool holds(const void* block) const {
    const auto at = reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(base_);
    return base_ && at < static_cast<uintptr_t>(span_);
  }
  // Gives the memory of free blocks back to the system. Their addresses stay, and so does the
  // promise of memory for them where the system counts promises (vm.overcommit_memory=2).
  void release();

  // Bytes up to the highest address that was ever used: what these blocks hold at most.
  int64_t reach() const;

 private:
  // The range is free from now on, and has no free neighbour; end() where there is no memory to
  // note it.
  std::map<int64_t, int64_t>::iterator note_free(int64_t begin, int64_t size) noexcept;

  std::byte* reserved_ = nullptr;  // as the system gave it
  std::byte* base_ = nullptr;      // where the first huge page begins
  int64_t span_;
  mutable std::mutex mutex_;
  int64_t reach_ = 0;                // readable and writable up to here
  std::map<int64_t, int64_t> free_;  // offset and bytes below reach_, no two of them neighbours
};

}  // namespace weft::detail
