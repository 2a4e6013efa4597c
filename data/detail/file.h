// Whole files as bytes.
#pragma once

#include "core/error.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace weft::data::detail {

// This process has run out of memory or of file descriptors: what it was doing is not to blame.
class OutOfResources : public Error {
 public:
  using Error::Error;
};

struct ReadFile {
  std::string name = {};  // what errors call the file; empty: its path
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
};

// Throws an Error "[op] name: reason" when the file cannot be opened, is not a regular file, is too
// large, or ends early; OutOfResources where that is why.
std::vector<std::byte> read_file(const char* op, const std::string& path);
// The same into a buffer that is used again.
void read_file(const char* op, const std::string& path, std::vector<std::byte>& bytes,
               const ReadFile& how = {});

}  // namespace weft::data::detail
