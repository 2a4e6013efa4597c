// Where the seconds of a run go.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::app {

enum class Phase : uint8_t { data, forward, backward, communication, optimizer, checkpoint };
inline constexpr std::array<const char*, 6> kPhaseNames = {
    "data", "forward", "backward", "communication", "optimizer", "checkpoint"};

// Seconds on a clock that only goes forward.
double seconds_now();

// Charges the time since the last mark to a phase.
class StepClock {
 public:
  StepClock() : last_(seconds_now()) {}
  // Leaves out what happened since the last mark.
  void skip() { last_ = seconds_now(); }
  void mark(Phase phase) {
    const double now = seconds_now();
    seconds_[static_cast<size_t>(phase)] += now - last_;
    last_ = now;
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
  double last_mark() const { return last_; }
  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }

 private:
  std::array<double, 6> seconds_{};
  double last_;
};

}  // namespace weft::app
