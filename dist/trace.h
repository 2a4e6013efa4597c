// A trace: what every rank computed, communicated and waited for, on one time line, as a file that
// Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   dist::Trace trace(comm);
//   …; trace.span("forward", began, clock_seconds()); …
//   trace.write("trace.json");                       // a collective: rank 0 writes the file
//
// A process of the trace is a rank. Its tracks: compute, what span() was told; waiting, when the
// rank's own thread stood in a collective, or for one that it had started; and a track for each
// communicator with its collectives, their bytes, unit and number. Ranks of one host share a clock;
// those of other hosts keep their own.
#pragma once

#include "dist/communicator.h"

#include <memory>
#include <string>

namespace weft::dist {

class Trace {
 public:
  // Listens to the recorder of `comm` (in the place of any listener before), which must outlive
  // this. Keeps at most `capacity` spans and collectives, about 200 bytes each: the first ones;
  // write() says how many came after.
  explicit Trace(Communicator& comm, size_t capacity = size_t{1} << 18);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // This rank did `what` from `begin` to `end`, by clock_seconds(). Thread safe.
  void span(const std::string& what, double begin, double end);
  // A collective: every rank sends what it has to rank 0, which writes `path` under a temporary
  // name and renames it. Throws an Error that names the path. A run that fails before has no trace.
  void write(const std::string& path);

 private:
  struct Log;
  Communicator& comm_;
  std::shared_ptr<Log> log_;
};

}  // namespace weft::dist
