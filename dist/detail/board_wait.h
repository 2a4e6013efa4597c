// BoardCommunicator's waiting loop, for the files that wait for things of their own.
#pragma once

#include "dist/detail/awake_time.h"
#include "dist/detail/board_communicator.h"

#include <sched.h>

#include <functional>
#include <vector>

namespace weft::dist::detail {

// The call being executed.
struct BoardCommunicator::Present {
  const Call& call;
  Contract contract;
  int64_t sequence;
  Waiting waiting;
  // Set while it waits.
  std::function<bool(int)> still_missing = {};
};

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// First spins, as ranks that work side by side come within microseconds; then lets other threads
// run between two looks, as the one it waits for may need this very processor; then sleeps. Death
// and the timeout are looked for while it sleeps.
template <class Ready, class Missing>
void BoardCommunicator::await(Present& present, const Ready& ready, const Missing& missing) {
  const int spins = crowded_ ? 20 : 300;
  for (int i = 0; i < spins; ++i) {
    if (ready()) return;
    pause_processor();
  }
  AwakeTime awake;
  if (present.waiting == Waiting::eager) {
    do {
      for (int i = 0; i < 8; ++i) {
        if (ready()) return;
        sched_yield();
      }
    } while (awake.look() < 1e-3);
  }
  double next_look = 0;
  for (;;) {
    board_.sleep(ready);
    if (ready()) return;
    if (board_.decided()) raise();
    const double waited = awake.look();
    if (waited < next_look) continue;
    next_look = waited + 0.02;
    present.still_missing = missing;
    std::vector<int> late;
    for (int r = 0; r < size(); ++r) {
      if (missing(r)) late.push_back(r);
    }
    if (!late.empty()) report_missing(present, late, waited);
  }
}

}  // namespace weft::dist::detail
