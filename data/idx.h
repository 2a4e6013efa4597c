// IDX files: the format of the MNIST family (a big-endian header of type and sizes, then the
// values).
#pragma once

#include "core/tensor.h"

#include <span>
#include <string>

namespace weft::data {

// Reads an IDX file, plain or gzipped (told by its first bytes, not by its name). u8 stays u8, 8-
// and 16-bit signed and i32 become i32, f32 and f64 stay. The header is checked against the file's
// size before anything is allocated; damage (bad magic, truncation, trailing bytes, a failed
// checksum) throws an Error naming file, byte offset and reason.
Tensor read_idx(const std::string& path);

// The same from memory; `name` stands for the file in errors.
Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name);

}  // namespace weft::data
