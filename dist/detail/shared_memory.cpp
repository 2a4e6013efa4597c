#include "dist/detail/shared_memory.h"

#include "core/ledger.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::dist::detail {

FileDescriptor make_memory_file(const char* name, size_t bytes) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  WEFT_CHECK(file.valid() && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0, "shm",
             "expected a memory file of ", bytes, " bytes, got: ", std::strerror(errno));
  return file;
}

size_t heap_bytes(size_t memory, int ranks) {
  constexpr size_t kHugePage = size_t{1} << 21;
  constexpr size_t kAddresses = size_t{1} << 46;
  const size_t most = kAddresses / static_cast<size_t>(ranks) / kHugePage * kHugePage;
  return std::min((memory + kHugePage - 1) / kHugePage * kHugePage, most);
}

Mapping::Mapping(const FileDescriptor& file, size_t bytes) : bytes_(bytes) {
  void* at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  WEFT_CHECK(at != MAP_FAILED, "shm", "expected to map ", bytes,
             " bytes of address space, got: ", std::strerror(errno));
  data_ = static_cast<std::byte*>(at);
  madvise(data_, bytes, MADV_HUGEPAGE);  // where the system has them for memory files
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

std::byte* SharedHeap::take(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  size_t at = 0;
  bool touched = true;
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto run = free_.begin(); run != free_.end(); ++run) {
      if (run->second >= size && (best == free_.end() || run->second < best->second)) best = run;
    }
    if (best != free_.end()) {
      at = best->first;
      if (best->second > size) free_.emplace(at + size, best->second - size);
      free_.erase(best);
    } else {
      // Large runs begin on a page, so that they do not share one with a neighbour.
      const size_t aligned = size < 4096 ? used_ : (used_ + 4095) / 4096 * 4096;
      if (size > mapping_.bytes() - std::min(aligned, mapping_.bytes())) {
        throw OutOfMemory(
            concat({"[memory] the shared heap has no ", format_bytes(static_cast<int64_t>(bytes)),
                    " left\n", current_ledger().report()}));
      }
      if (aligned > used_) free_.emplace(used_, aligned - used_);
      at = aligned;
      used_ = aligned + size;
      touched = false;
    }
  }
  std::byte* memory = mapping_.data() + at;
  if (touched) {
    std::memset(memory, 0, size);
  } else if (size >= 4096) {
    // All pages at once instead of one fault each; where the system does not know how, faults do.
    madvise(memory, size, MADV_POPULATE_WRITE);
  }
  return memory;
}

void SharedHeap::give_back(std::byte* memory, size_t bytes) {
  size_t begin = static_cast<size_t>(memory - mapping_.data());
  size_t size = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  const std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += size;
      return;
    }
  }
  free_.emplace(begin, size);
}

}  // namespace weft::dist::detail
