#include "core/allocator.h"

#include "core/detail/large_blocks.h"
#include "core/ledger.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace weft {
namespace {

// Size classes: multiples of 64 up to 1 KiB, then eight to a doubling (at most 12.5 % unused).
constexpr int kSmallClasses = 16;
constexpr int kClasses = kSmallClasses + 8 * 44;
// Blocks of up to 32 KiB have a cache per thread, which needs no lock.
constexpr int kThreadClasses = kSmallClasses + 8 * 5;
constexpr size_t kThreadDepth = 64;
// More than a process can have; the last class ends far above.
constexpr int64_t kAddressable = int64_t{1} << 47;

int class_of(int64_t bytes) {
  if (bytes <= 1024) return static_cast<int>((std::max<int64_t>(bytes, 1) + 63) / 64) - 1;
  const auto last = static_cast<uint64_t>(bytes - 1);
  const int exponent = 63 - std::countl_zero(last);  // 2^exponent <= bytes - 1
  const int eighth = static_cast<int>((last >> (exponent - 3)) & 7);
  return kSmallClasses + (exponent - 10) * 8 + eighth;
}

int64_t class_bytes(int size_class) {
  if (size_class < kSmallClasses) return int64_t{64} * (size_class + 1);
  const int exponent = 10 + (size_class - kSmallClasses) / 8;
  const int eighth = (size_class - kSmallClasses) % 8;
  return (int64_t{1} << exponent) + (int64_t{1} << (exponent - 3)) * (eighth + 1);
}

void* system_allocate(int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const int64_t alignment = huge ? kHugePage : kAlignment;
  void* block =
      std::aligned_alloc(static_cast<size_t>(alignment),
                         static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
  // Huge pages spare the page walks of large tensors; a refusal costs nothing but speed.
  if (huge && block) madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return block;
}

// Free blocks shared by all threads.
class CentralCache {
 public:
  void* take(int size_class) {
    const std::lock_guard lock(mutex_);
    auto& list = lists_[static_cast<size_t>(size_class)];
    if (list.empty()) return nullptr;
    void* block = list.back();
    list.pop_back();
    return block;
  }
  void put(int size_class, void* block) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      lists_[static_cast<size_t>(size_class)].push_back(block);
    } catch (const std::bad_alloc&) {  // the list could not grow
      std::free(block);
    }
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& list : lists_) {
      for (void* block : list)
        std::free(block);
      list.clear();
    }
  }

 private:
  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> lists_;
};

// Blocks of 1 MiB and more. Addresses for four times the machine's memory, since free ranges lie
// between those in use; less where the process may have fewer, which others need too.
detail::LargeBlocks& large_blocks() {
  static auto* blocks = [] {
    int64_t span = int64_t{4} * sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      span = std::min(span, static_cast<int64_t>(limit.rlim_cur / 2));
    return new detail::LargeBlocks(span);  // outlives every tensor
  }();
  return *blocks;
}

CentralCache& central() {
  static CentralCache* cache = new CentralCache;  // outlives every thread's cache
  return *cache;
}

struct ThreadCache {
  std::array<std::array<void*, kThreadDepth>, kThreadClasses> blocks;
  std::array<size_t, kThreadClasses> depth{};

  ~ThreadCache() {
    flush();
    closed() = true;
  }
  void flush() {
    for (size_t c = 0; c < kThreadClasses; ++c) {
      for (size_t i = 0; i < depth[c]; ++i)
        central().put(static_cast<int>(c), blocks[c][i]);
      depth[c] = 0;
    }
  }
  // Tensors freed while a thread ends, after its cache, go to the central one.
  static bool& closed() {
    static thread_local bool value = false;
    return value;
  }
};

ThreadCache& thread_cache() {
  static thread_local ThreadCache cache;
  return cache;
}

[[noreturn]] void out_of_memory(int64_t bytes) {
  throw OutOfMemory(concat(
      {"[memory] the system has no ", format_bytes(bytes), " left\n", current_ledger().report()}));
}

}  // namespace

void* allocate_cached(int64_t bytes) {
  if (bytes > kAddressable) out_of_memory(bytes);
  const int size_class = class_of(bytes);
  if (kCaching) {
    if (size_class < kThreadClasses && !ThreadCache::closed()) {
      ThreadCache& cache = thread_cache();
      size_t& depth = cache.depth[static_cast<size_t>(size_class)];
      if (depth > 0) return cache.blocks[static_cast<size_t>(size_class)][--depth];
    }
    if (bytes >= detail::LargeBlocks::kLeast) {
      if (void* block = large_blocks().allocate(bytes)) return block;
    }
    if (void* block = central().take(size_class)) return block;
  }
  const int64_t rounded =
      kCaching ? class_bytes(size_class) : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* block = system_allocate(rounded);
  if (!block) {
    release_cached_memory();
    block = system_allocate(rounded);
  }
  if (!block) out_of_memory(rounded);
  return block;
}

void free_cached(void* block, int64_t bytes) noexcept {
  if (!kCaching) return std::free(block);
  if (bytes >= detail::LargeBlocks::kLeast && large_blocks().holds(block))
    return large_blocks().free(block, bytes);
  const int size_class = class_of(bytes);
  if (size_class < kThreadClasses && !ThreadCache::closed()) {
    ThreadCache& cache = thread_cache();
    size_t& depth = cache.depth[static_cast<size_t>(size_class)];
    if (depth < kThreadDepth) {
      cache.blocks[static_cast<size_t>(size_class)][depth++] = block;
      return;
    }
  }
  central().put(size_class, block);
}

void release_cached_memory() {
  if (!ThreadCache::closed()) thread_cache().flush();
  central().clear();
  if (kCaching) large_blocks().release();
}

}  // namespace weft
