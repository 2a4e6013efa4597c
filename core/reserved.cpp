#include "core/reserved.h"

#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>

namespace weft {

ReservedMemory::ReservedMemory(int64_t bytes) : bytes_(bytes), ledger_(current_ledger()) {
  WEFT_CHECK(bytes >= 0, "reserved_memory", "expected a size of 0 or more, got ", bytes);
  // Huge pages halve the cost of coming and going; they need addresses on their borders.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1) + kHugePage);
  void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw OutOfMemory("[reserved_memory] no addresses left for " + format_bytes(bytes));
  const auto aligned = (reinterpret_cast<uintptr_t>(at) + kHugePage - 1) / kHugePage * kHugePage;
  storage_ =
      Storage::wrap(reinterpret_cast<void*>(aligned), bytes, [at, size] { munmap(at, size); });
}

ReservedMemory::~ReservedMemory() {
  drop();
}

void ReservedMemory::take(Category category) {
  if (present_ || bytes_ == 0) return;
  ledger_.charge(category, bytes_);
  const auto size = static_cast<size_t>(bytes_);
  if (mprotect(storage_->data(), size, PROT_READ | PROT_WRITE) != 0) {
    ledger_.credit(category, bytes_);
    throw OutOfMemory("[reserved_memory] the system has no " + format_bytes(bytes_) + " left\n" +
                      ledger_.report());
  }
  if (bytes_ >= kHugePage) madvise(storage_->data(), size, MADV_HUGEPAGE);
  category_ = category;
  present_ = true;
}

void ReservedMemory::drop() noexcept {
  if (!present_) return;
  const auto size = static_cast<size_t>(bytes_);
  // Dropping the pages first: protecting alone would keep them.
  madvise(storage_->data(), size, MADV_DONTNEED);
  mprotect(storage_->data(), size, PROT_NONE);
  ledger_.credit(category_, bytes_);
  present_ = false;
}

}  // namespace weft
