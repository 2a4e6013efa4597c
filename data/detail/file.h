// Whole files as bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft::data::detail {

// Throws an Error "[op] path: reason" when the file cannot be opened, is not a regular file, or
// ends early.
std::vector<std::byte> read_file(const char* op, const std::string& path);
// The same into a buffer that is used again.
void read_file(const char* op, const std::string& path, std::vector<std::byte>& bytes);

}  // namespace weft::data::detail
