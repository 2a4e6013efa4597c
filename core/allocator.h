// The caching allocator of CPU memory. Freed blocks are kept and handed out again, small ones by
// size class and large ones (1 MiB and more) from one range of addresses where neighbours join, so
// that a training step, once warm, asks the system for nothing.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kAlignment = 64;
inline constexpr int64_t kHugePage = int64_t{2} << 20;  // bytes

// Whether freed blocks are handed out again: not where AddressSanitizer looks on, from which a
// reused block would hide a use after free.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCaching = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kCaching = false;
#else
inline constexpr bool kCaching = true;
#endif
#else
inline constexpr bool kCaching = true;
#endif

// A block of at least `bytes`, aligned to 64. Thread safe. Throws OutOfMemory when the system has
// none left.
void* allocate_cached(int64_t bytes);
// Gives back what allocate_cached(bytes) returned, from any thread.
void free_cached(void* block, int64_t bytes) noexcept;

// Returns all unused blocks to the system.
void release_cached_memory();

}  // namespace weft
