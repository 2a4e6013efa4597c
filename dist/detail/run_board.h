// What the ranks of a trainer and the supervisor beside them tell each other: memory that all of
// them map. Ranks write how far they are; the supervisor reads it, and asks them to stop.
#pragma once

#include "dist/detail/file_descriptor.h"
#include "dist/step_clock.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace weft::dist::detail {

// Why ranks save and end before their work is done.
enum class StopReason : int32_t { none, preempted, places };

// How far a rank is, copied.
struct RankSample {
  uint64_t beats = 0;  // rises whenever the rank has got on
  int64_t step = 0;    // completed; -1 before the first is begun
  Phase phase = Phase::data;
  std::array<double, kPhases> seconds{};  // by phase, since the attempt began
  int64_t resident = 0;                   // bytes of the process, 0: not known
  bool done = false;
};

// Thread safe. Every process has an object of its own over the same memory.
class RunBoard {
 public:
  // New memory, which goes with the last process that maps it; programs that are started inherit
  // descriptor(). Throws Error.
  explicit RunBoard(int ranks);
  // What another process has made. Takes the descriptor over. Throws Error.
  static RunBoard adopt(int descriptor);
  ~RunBoard();
  RunBoard(RunBoard&& other) noexcept;
  RunBoard& operator=(RunBoard&&) = delete;

  int descriptor() const { return descriptor_.get(); }
  int ranks() const;

  // ---- a rank about itself ----
  void beat(int rank, Phase phase);
  void completed(int rank, int64_t step, const std::array<double, kPhases>& seconds,
                 int64_t resident);
  void done(int rank);
  RankSample sample(int rank) const;

  // ---- stopping together ----
  // The first reason counts. Safe in a signal handler.
  void request_stop(StopReason reason);
  StopReason stop_requested() const;
  // Asked by every rank when it has completed `step`: whether this is the step after which all of
  // them stop. All ranks give the same answer for a step, if no rank can complete step n + 1 before
  // every rank has asked about step n - which holds where steps exchange gradients, as then it
  // needs the others' part of step n + 1: who asks first after a request settles on the next step.
  bool stops_after(int64_t step);

  // ---- where the attempt began ----
  // The attempt has begun where it was told to: what the run was to go back behind is gone.
  void begin();
  bool begun() const;

  // ---- failures that would be the same again ----
  void forbid_restart();
  bool restart_forbidden() const;

  // ---- places (a rank's place is gone) ----
  void lose_place();
  int places_lost() const;

 private:
  struct Memory;
  RunBoard() = default;
  void map(int64_t bytes);

  FileDescriptor descriptor_;
  Memory* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// Bytes of this process that are in memory.
int64_t resident_bytes();

}  // namespace weft::dist::detail
