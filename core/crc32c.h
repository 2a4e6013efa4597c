// CRC32C (Castagnoli), the check of iSCSI, ext4 and Btrfs: polynomial 0x1EDC6F41, bits reflected,
// started and ended with all ones (RFC 3720, §12.1 and appendix B.4). It finds every error of up to
// 32 neighbouring bits, so every damaged byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Of `count` bytes; of bytes that follow others, whose CRC is `before`.
uint32_t crc32c(const void* bytes, size_t count, uint32_t before = 0);

// Of A followed by B, from the CRC of each and B's length in bytes.
uint32_t crc32c_combine(uint32_t a, uint32_t b, uint64_t b_bytes);

}  // namespace weft
