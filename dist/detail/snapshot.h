// A copy of what a rank saves, so that training may go on at once.
#pragma once

#include "dist/detail/checkpoint_pieces.h"

namespace weft::dist::detail {

// Copies the pieces' values and points the pieces at the copy, which is charged to this thread's
// ledger as `other`. By this thread's num_threads().
void take_snapshot(std::vector<Piece>& pieces);

}  // namespace weft::dist::detail
