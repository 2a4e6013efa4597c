// A copy of what a rank saves, so that training may go on at once.
#pragma once

#include "dist/detail/checkpoint_pieces.h"

namespace weft::dist::detail {

// One run of bytes to copy.
struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t count = 0;
};
// Makes them all, past the caches: nobody reads what is copied soon, and memory is not read only to
// be overwritten. By this thread's num_threads().
void copy_all(const std::vector<Copy>& copies);

// Copies the pieces' values and points the pieces at the copy, which is charged to this thread's
// ledger as `other`.
void take_snapshot(std::vector<Piece>& pieces);

}  // namespace weft::dist::detail
