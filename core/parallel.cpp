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
#else
static inline void __tsan_acquire(void*) {}
static inline void __tsan_release(void*) {}
#endif

namespace weft {
namespace {

thread_local int t_threads = 0;

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

  std::exception_ptr error;
  std::mutex error_mutex;
  char fork = 0;
  char join = 0;
  Ledger& ledger = current_ledger();
  const Category category = current_category();
  __tsan_release(&fork);
#pragma omp parallel num_threads(pieces)
  {
    __tsan_acquire(&fork);
    const int64_t piece = omp_get_thread_num();
    const int64_t team = omp_get_num_threads();
    const int64_t first = begin + grains * piece / team * grain;
    const int64_t last = std::min(end, begin + grains * (piece + 1) / team * grain);
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
  __tsan_acquire(&join);
  if (error) std::rethrow_exception(error);
}

}  // namespace weft
