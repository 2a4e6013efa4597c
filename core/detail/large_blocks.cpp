#include "core/detail/large_blocks.h"

#include "core/allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace weft::detail {
namespace {

int64_t round_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

int64_t whole_pages(int64_t bytes) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  return round_up(std::max<int64_t>(bytes, 1), page);
}

}  // namespace

LargeBlocks::LargeBlocks(int64_t span) : span_(round_up(span, kHugePage)) {
  // Addresses alone: the system counts them as memory, or refuses, once they may be written.
  const auto size = static_cast<size_t>(span_ + kHugePage);
  void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    span_ = 0;
    return;
  }
  // Huge pages spare the page walks of large tensors; a refusal costs nothing but speed.
  madvise(at, size, MADV_HUGEPAGE);
  reserved_ = static_cast<std::byte*>(at);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
  base_ = reserved_ + (round_up(address, kHugePage) - address);
}

LargeBlocks::~LargeBlocks() {
  if (reserved_) munmap(reserved_, static_cast<size_t>(span_ + kHugePage));
}

void* LargeBlocks::allocate(int64_t bytes) {
  if (bytes > span_) return nullptr;
  const int64_t size = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  // The smallest that is large enough, of those the first: it leaves the large ones whole.
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second >= size && (best == free_.end() || range->second < best->second))
      best = range;
  }
  if (best == free_.end()) {
    // At the end, from where a free range there begins.
    const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    const bool joins = last != free_.end() && last->first + last->second == reach_;
    const int64_t begin = joins ? last->first : reach_;
    const int64_t reach = round_up(begin + size, kHugePage);
    if (reach > span_ ||
        mprotect(base_ + reach_, static_cast<size_t>(reach - reach_), PROT_READ | PROT_WRITE) != 0)
      return nullptr;
    reach_ = reach;
    if (joins) {
      best = last;
      best->second = reach - begin;
    } else {
      best = note_free(begin, reach - begin);
      if (best == free_.end()) return nullptr;
    }
  }
  const int64_t offset = best->first;
  const int64_t rest = best->second - size;
  if (rest == 0) {
    free_.erase(best);
  } else {
    auto node = free_.extract(best);
    node.key() = offset + size;
    node.mapped() = rest;
    free_.insert(std::move(node));
  }
  return base_ + offset;
}

void LargeBlocks::free(void* block, int64_t bytes) noexcept {
  int64_t begin = static_cast<std::byte*>(block) - base_;
  int64_t size = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  const auto after = free_.lower_bound(begin);
  const bool joins_after = after != free_.end() && begin + size == after->first;
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += size + (joins_after ? after->second : 0);
      if (joins_after) free_.erase(after);
      return;
    }
  }
  if (joins_after) {
    auto node = free_.extract(after);
    node.key() = begin;
    node.mapped() += size;
    free_.insert(std::move(node));
    return;
  }
  note_free(begin, size);
}

std::map<int64_t, int64_t>::iterator LargeBlocks::note_free(int64_t begin, int64_t size) noexcept {
  try {
    return free_.emplace(begin, size).first;
  } catch (const std::bad_alloc&) {  // no memory to note it by: it stays unused
    return free_.end();
  }
}

void LargeBlocks::release() {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, size] : free_)
    madvise(base_ + begin, static_cast<size_t>(size), MADV_DONTNEED);
}

int64_t LargeBlocks::reach() const {
  const std::lock_guard lock(mutex_);
  return reach_;
}

}  // namespace weft::detail
