// Ending what is under way, where its outcome no longer matters.
#pragma once

#include "dist/communicator.h"

#include <utility>

namespace weft::dist::detail {

// Waits until the call no longer touches memory. That it failed is not lost: its communicator
// repeats the verdict in every later call.
inline void settle(Handle& handle) noexcept {
  try {
    std::exchange(handle, {}).wait();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace weft::dist::detail
