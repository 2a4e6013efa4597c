// Where the seconds of a training run go.
#pragma once

#include "dist/recorder.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::dist {

// communication is waiting for other ranks, whichever phase that happens in.
enum class Phase : uint8_t { data, forward, backward, communication, optimizer, checkpoint };
inline constexpr size_t kPhases = 6;
inline constexpr std::array<const char*, kPhases> kPhaseNames = {
    "data", "forward", "backward", "communication", "optimizer", "checkpoint"};
inline const char* to_string(Phase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}

// Charges time to phases, one after the other.
class StepClock {
 public:
  // From here on time is charged to `phase`; what came before goes to the one before.
  void begin(Phase phase) {
    const double now = clock_seconds();
    if (running_) seconds_[static_cast<size_t>(phase_)] += now - last_;
    phase_ = phase;
    last_ = now;
    running_ = true;
  }
  // Until the next begin() time is charged to none.
  void pause() {
    begin(phase_);
    running_ = false;
  }
  // So many of the seconds were spent waiting for other ranks: takes them from the phases in which
  // that happens.
  void move_to_communication(double waited) {
    for (const Phase phase : {Phase::optimizer, Phase::backward, Phase::forward}) {
      double& from = seconds_[static_cast<size_t>(phase)];
      const double moved = waited < from ? waited : from;
      from -= moved;
      seconds_[static_cast<size_t>(Phase::communication)] += moved;
      waited -= moved;
    }
  }
  bool running() const { return running_; }
  Phase phase() const { return phase_; }
  double last_begin() const { return last_; }
  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }
  const std::array<double, kPhases>& seconds() const { return seconds_; }

 private:
  std::array<double, kPhases> seconds_{};
  double last_ = 0;
  Phase phase_ = Phase::data;
  bool running_ = false;
};

}  // namespace weft::dist
