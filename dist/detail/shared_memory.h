// Memory files without a name, and a heap in one.
#pragma once

#include "dist/detail/file_descriptor.h"

#include <cstddef>
#include <map>
#include <mutex>

namespace weft::dist::detail {

// A memory file of `bytes` zeros, of which only pages that are touched take memory. It lasts as
// long as a process has it open or mapped.
FileDescriptor make_memory_file(const char* name, size_t bytes);

// Bytes of each rank's heap where `ranks` share a host with `memory` bytes: addresses for all of
// the memory, as any rank may be the one that holds it, but no more than there are. Every process
// maps the heaps of all ranks, and it has 2^47 bytes of addresses on today's processors: half of
// those.
size_t heap_bytes(size_t memory, int ranks);

// A mapping of a whole memory file.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const FileDescriptor& file, size_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Hands out runs of [0, bytes) of a memory file: the best fitting free one. Thread safe.
class SharedHeap {
 public:
  explicit SharedHeap(Mapping mapping) : mapping_(std::move(mapping)) {}

  // Zeroed, aligned to 64. Throws OutOfMemory when nothing is left.
  std::byte* take(size_t bytes);
  void give_back(std::byte* memory, size_t bytes);

  bool holds(const std::byte* data) const {
    return data >= mapping_.data() && data < mapping_.data() + mapping_.bytes();
  }
  std::byte* data() const { return mapping_.data(); }

 private:
  Mapping mapping_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // begin → size, of runs that were used; no two touch
  size_t used_ = 0;                // from here on never touched, so still zeros
};

}  // namespace weft::dist::detail
