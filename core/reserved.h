// Memory at a fixed address that comes and goes. Views of it stay valid handles while it is gone;
// only their elements may not be touched then (the processor faults on it: nothing is read
// silently). This is how a parameter's full values can be dropped between their uses although
// saved tensors and other views still point at them.
#pragma once

#include "core/ledger.h"
#include "core/storage.h"

namespace weft {

// Owned by one thread. Charged to the ledger of the thread that made it, while it is there.
class ReservedMemory {
 public:
  // Addresses for `bytes`; no memory yet.
  explicit ReservedMemory(int64_t bytes);
  // Gives the memory back. The addresses go with the last view.
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  // What tensors view: lives as long as they do.
  const Ref<Storage>& storage() const { return storage_; }
  int64_t bytes() const { return bytes_; }
  bool present() const { return present_; }

  // Takes zeroed memory, charged to `category`. Throws OutOfMemory and changes nothing. Does
  // nothing if it is there.
  void take(Category category);
  // Gives the memory back and forgets the values.
  void drop() noexcept;

 private:
  int64_t bytes_;
  Ledger& ledger_;
  Ref<Storage> storage_;
  Category category_ = Category::other;
  bool present_ = false;
};

}  // namespace weft
