// A communicator in whose collectives faults may strike.
#pragma once

#include "dist/communicator.h"
#include "dist/faults.h"

#include <atomic>
#include <memory>

namespace weft::dist::detail {

// The faults of a rank and the step that it is in.
struct FaultPoint {
  Faults faults;
  std::atomic<int64_t> step{0};
};

// `inner`, of which a rank comes by the phase "communication" before every call. So do
// communicators that are split off; `inner` must outlive this, and all of them the point.
std::unique_ptr<Communicator> with_faults(Communicator& inner, FaultPoint& point);

}  // namespace weft::dist::detail
