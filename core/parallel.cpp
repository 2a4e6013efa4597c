#include "core/parallel.h"

#include "core/error.h"
#include "core/ledger.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

// OpenMP's runtime is not built for ThreadSanitizer, which therefore misses the fork and the join;
// these tell it.
#if defined(__SANITIZE_THREAD__)
#define WEFT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT_TSAN 1
#endif
#endif
#ifdef WEFT_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#define WEFT_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
static inline void __tsan_acquire(void*) {}
static inline void __tsan_release(void*) {}
#define WEFT_NO_TSAN
#endif

namespace weft {
namespace {

thread_local int t_threads = 0;

// One parallel loop, as its threads share it.
struct Loop {
  int64_t begin;
  int64_t end;
  int64_t grain;
  int64_t grains;
  RangeFunction function;
  Ledger& ledger;
  Category category;
  std::exception_ptr error = nullptr;
  std::mutex error_mutex = {};
  char fork = 0;
  char join = 0;

  void run_piece(int64_t piece, int64_t pieces) {
    __tsan_acquire(&fork);
    const int64_t first = begin + grains * piece / pieces * grain;
    const int64_t last = std::min(end, begin + grains * (piece + 1) / pieces * grain);
    try {
      const LedgerScope ledger_scope(ledger);
      const CategoryScope category_scope(category);
      if (first < last) function(first, last);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    __tsan_release(&join);
  }
};

// Apart from the rest because what the compiler passes to the threads here is written after any
// word to ThreadSanitizer and read before the next.
WEFT_NO_TSAN void fork_and_join(Loop& loop, int pieces) {
#pragma omp parallel num_threads(pieces)
  loop.run_piece(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace

int num_threads() {
  if (t_threads == 0) t_threads = std::max(1, omp_get_max_threads());
  return t_threads;
}

void set_num_threads(int count) {
  WEFT_CHECK(count >= 1, "set_num_threads", "expected at least 1, got ", count);
  t_threads = count;
  omp_set_num_threads(count);  // oneDNN's primitives ask OpenMP
}

void detail::parallel_run(int64_t begin, int64_t end, int64_t grain, RangeFunction function) {
  const int64_t grains = (end - begin + grain - 1) / grain;
  const auto pieces =
      static_cast<int>(std::min<int64_t>(grains, omp_in_parallel() ? 1 : num_threads()));
  if (pieces <= 1) return function(begin, end);

  Loop loop{begin, end, grain, grains, function, current_ledger(), current_category()};
  __tsan_release(&loop.fork);
  fork_and_join(loop, pieces);
  __tsan_acquire(&loop.join);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace weft
