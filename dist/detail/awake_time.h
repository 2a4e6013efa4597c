// A clock for limits on waiting, which stands still while this process does.
#pragma once

#include "dist/recorder.h"

#include <algorithm>

namespace weft::dist::detail {

// A job may be stopped as a whole and continued much later: by Ctrl-Z, by a batch system, with the
// machine. By any other clock, whoever looks first after that finds all others late, which were
// only stopped with it. Whoever waits looks around many times a second; so after a long time
// without a look it did not run either, and no more than kLongestGap of it counts.
class AwakeTime {
 public:
  static constexpr double kLongestGap = 0.25;

  explicit AwakeTime(double now = clock_seconds()) : looked_(now) {}

  // Seconds awake since it was made.
  double look(double now = clock_seconds()) {
    awake_ += std::min(now - looked_, kLongestGap);
    looked_ = now;
    return awake_;
  }

 private:
  double awake_ = 0;
  double looked_;
};

}  // namespace weft::dist::detail
