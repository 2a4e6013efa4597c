// The flight recorder: what this rank has asked its communicators to do, and when.
#pragma once

#include "dist/collective.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weft::dist {

// Seconds on a clock that all processes of a host share and that only goes forward.
double clock_seconds();

struct Event {
  Collective collective = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = f32;
  int64_t sequence = 0;  // of this communicator
  int64_t count = 0;     // elements, as the call states them
  int64_t sent_bytes = 0;
  double queued = 0;  // clock_seconds()
  double start = 0;   // all ranks can be late: from here on this rank took part
  double end = 0;     // 0 while it runs
  std::string communicator;
  std::string unit;
  int64_t begin = 0;
  int64_t tag_end = 0;
};

// "all_reduce #42 of 'world', 1024 x f32, sum, unit 'blocks.3' [0, 1024)"
std::string describe(const Event& event);

// Thread safe.
class Recorder {
 public:
  struct Total {
    int64_t calls = 0;
    int64_t sent_bytes = 0;
  };

  explicit Recorder(size_t capacity = 1024) : capacity_(capacity) {}

  int64_t begin(Event event);  // returns the event's number
  void started(int64_t number);
  double ended(int64_t number);  // returns when: clock_seconds()

  // The latest events, oldest first.
  std::vector<Event> events() const;
  // Per collective, all communicators together: calls, and the bytes a rank of this algorithm must
  // send: (W-1)/W of the buffer for reduce-scatter and all-gather, twice that for all-reduce.
  std::array<Total, kCollectives> totals() const;
  // The same for each unit that calls have named in their tags; calls without a tag under "".
  std::map<std::string, std::array<Total, kCollectives>> totals_by_unit() const;
  void reset_totals();
  // Seconds in which this rank's own thread, the one that made the recorder, waited for
  // communication. Others that wait (a checkpoint being written) hold nothing up.
  double waited_seconds() const;
  void add_waited(double begin, double end);
  // Called with every event that has ended, on the thread that ran it: what a trace file is made
  // of. One listener at a time; an empty one stops.
  void set_listener(std::function<void(const Event&)> listener);
  // Called with begin and end of every wait, on the thread that waited. Neither may throw.
  void set_wait_listener(std::function<void(double begin, double end)> listener);

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  size_t capacity_;
  std::vector<Event> ring_;
  int64_t next_ = 0;
  std::array<Total, kCollectives> totals_{};
  std::map<std::string, std::array<Total, kCollectives>> by_unit_;
  double waited_ = 0;
  std::function<void(const Event&)> listener_;
  std::function<void(double begin, double end)> wait_listener_;
};

}  // namespace weft::dist
