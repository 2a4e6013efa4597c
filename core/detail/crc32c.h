// The two ways in which a CRC32C is computed. Both give the same; the first needs SSE 4.2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::detail {

#ifdef __SSE4_2__
uint32_t crc32c_sse42(const void* bytes, size_t count, uint32_t before);
#endif
uint32_t crc32c_tables(const void* bytes, size_t count, uint32_t before);

}  // namespace weft::detail
