// Threads inside one rank. Results of Weft's own kernels do not depend on how many there are: work
// is cut into pieces whose borders depend on sizes alone.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

// Threads that this thread's operators may use, itself included. Kept per calling thread, so that
// ranks which are threads of one process each have their own count. Default: all processors.
int num_threads();
void set_num_threads(int count);

// A borrowed callable void(int64_t begin, int64_t end); it must outlive the call it is passed to.
class RangeFunction {
 public:
  template <class F>
  RangeFunction(const F& function)
      : object_(&function), call_([](const void* object, int64_t begin, int64_t end) {
          (*static_cast<const F*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t);
};

namespace detail {
void parallel_run(int64_t begin, int64_t end, int64_t grain, RangeFunction function);
}

// Runs function over disjoint pieces that cover [begin, end), each of at least `grain` items (the
// last may be shorter). Borders are multiples of grain from begin. Small ranges, one thread and
// nested calls run in place. The first exception thrown by a piece is rethrown here after all
// pieces have ended.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const F& function) {
  if (end - begin <= grain) {
    if (end > begin) function(begin, end);
    return;
  }
  detail::parallel_run(begin, end, grain, function);
}

}  // namespace weft
