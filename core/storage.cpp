#include "core/storage.h"

#include "core/allocator.h"

#include <new>

namespace weft {
namespace {
// The Storage object sits in front of its bytes in one block: one allocation a tensor, and small
// ones share a cache line pair with what they describe.
constexpr int64_t kHeader = kAlignment;
}  // namespace

Ref<Storage> Storage::allocate(int64_t bytes) {
  static_assert(sizeof(Storage) <= kHeader);
  Ledger& ledger = current_ledger();
  const Category category = current_category();
  // Charged once the memory is there, so that a refusal leaves no trace in the peaks.
  ledger.check_room(category, bytes);
  void* block = allocate_cached(bytes > INT64_MAX - kHeader ? bytes : kHeader + bytes);
  try {
    ledger.charge(category, bytes);
  } catch (...) {
    free_cached(block, kHeader + bytes);
    throw;
  }
  auto* storage = new (block) Storage(static_cast<std::byte*>(block) + kHeader, bytes);
  storage->ledger_ = &ledger;
  storage->category_ = category;
  return Ref<Storage>(storage);
}

Ref<Storage> Storage::wrap(void* data, int64_t bytes, Function<void()> release) {
  auto* storage = new Storage(static_cast<std::byte*>(data), bytes);
  storage->release_ = new Function<void()>(std::move(release));
  return Ref<Storage>(storage);
}

Ref<Storage> Storage::adopt(void* data, int64_t bytes, Function<void()> release) {
  Ref<Storage> storage = wrap(data, bytes, std::move(release));
  Ledger& ledger = current_ledger();
  storage->category_ = current_category();
  ledger.charge(storage->category_, bytes);
  storage->ledger_ = &ledger;
  return storage;
}

void Storage::recharge(Category category) {
  if (ledger_ && category != category_) ledger_->move(category_, category, bytes_);
  category_ = category;
}

void Storage::destroy() {
  if (release_) {
    if (ledger_) ledger_->credit(category_, bytes_);
    if (*release_) (*release_)();
    delete release_;
    delete this;
    return;
  }
  const int64_t bytes = bytes_;
  ledger_->credit(category_, bytes);
  this->~Storage();
  free_cached(this, kHeader + bytes);
}

}  // namespace weft
