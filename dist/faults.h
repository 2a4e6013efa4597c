// Faults on purpose, so that what a run does about them can be tried: `--inject SPEC` of the apps,
// RunConfig::inject, and tests.
//
// SPEC is a list of faults separated by ';', each an action and where it strikes:
//
//   kill:phase=backward,step=3,rank=1
//   kill:phase=rename,step=4,rank=0,target=all; delay:phase=forward,rank=2,seconds=0.05
//   kill:seed=7,steps=20
//
// Actions
//   kill    SIGKILL: of this rank, or of target=supervisor (which takes the ranks with it), or of
//           target=all
//   stop    SIGSTOP of this rank: alive, but it does nothing any more
//   delay   sleeps for seconds=X (0.1)
//   throw   throws an Error
//   leak    takes bytes=N of memory (1 MiB) and never gives it back
//   fill    the storage of checkpoints is full: the operation fails as it would then; phase write
//           (where none is given), open, fsync, rename or remove
//   flip    a bit of what is written to a checkpoint is turned; phase write
//   lose    kill, and the place of the rank is gone: the supervisor goes on with one place fewer
//
// Where: a fault strikes where all that is given holds.
//   phase=P    one of kFaultPhases; a must, but for fill, flip and with a seed
//   step=N     that step, counted from 1; step=A-B a range. A save counts as the step it saves
//   rank=N     that rank
//   call=K     only the K-th time within the step that the rest holds (a save writes many times)
//   attempt=N  that attempt of the run, the first one where not given; attempt=any each
//   times=K    at most so often in a process; without it delay, leak and fill strike every time,
//              the others once
//   seed=N     what is not given of phase, step (of 1 to steps=N, 10), rank and, in a save, call is
//              drawn from the seed, the same on all ranks. Within a save the step is the first one
//              from there on that is saved
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft::dist {

// Where a training run comes by, in the order of a step. start is before the first one, load before
// a checkpoint is read. snapshot and what follows are a save's: its beginning, making files,
// writing them, syncing files and directories, renaming, removing older checkpoints.
inline constexpr std::array<const char*, 15> kFaultPhases = {
    "start",  "load",     "data", "forward", "backward", "communication", "optimizer", "evaluation",
    "report", "snapshot", "open", "write",   "fsync",    "rename",        "remove"};

enum class FaultAction : uint8_t { kill, stop, delay, fail, leak, fill, flip, lose };
enum class FaultTarget : uint8_t { rank, supervisor, all };

struct Fault {
  FaultAction action = FaultAction::kill;
  FaultTarget target = FaultTarget::rank;
  std::string phase;  // "": to be drawn
  int64_t first_step = 0;
  int64_t last_step = INT64_MAX;
  int64_t rank = -1;     // any
  int64_t call = 0;      // any
  int64_t attempt = 1;   // 0: any
  int64_t times = -1;    // any number
  double seconds = 0.1;  // of a delay
  int64_t bytes = int64_t{1} << 20;
  bool seeded = false;
  uint64_t seed = 0;
  int64_t steps = 10;
  bool step_given = false;
};

// Throws an Error that names what is wrong with which fault. "": none.
std::vector<Fault> parse_faults(const std::string& spec);

// What a seed decides, decided.
Fault drawn(Fault fault, int ranks);

// "kill in backward of step 3 on rank 1"
std::string describe(const Fault& fault);

// The faults of one rank's process in one attempt. Copies share what has struck. Thread safe.
class Faults {
 public:
  Faults() = default;  // none
  Faults(const std::vector<Fault>& faults, int rank, int ranks, int64_t attempt);

  bool empty() const { return !state_; }
  // Whether any strikes in this phase, of whatever step.
  bool any(const char* phase) const;

  // What the caller has to do itself.
  struct Struck {
    bool fill = false;
    bool flip = false;
  };
  // This rank comes by `phase` of `step`: lets the faults strike that are due. Throws an Error for
  // a `throw`.
  Struck at(const char* phase, int64_t step) const;

  // Called before a `lose` strikes. Set it before the first at().
  void set_lose(void (*lose)(void* context), void* context);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weft::dist
