// Many flat runs of elements as one list of blocks, so that a whole model is worked through in one
// fork of the threads instead of one a parameter.
#pragma once

#include "core/parallel.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::optim {

class Blocks {
 public:
  // Elements of a block; the last one of a run may be shorter. Sums over blocks depend on this
  // number.
  static constexpr int64_t kSize = 4096;

  void clear() {
    runs_.clear();
    total_ = 0;
    elements_ = 0;
  }
  void add(int64_t count) {
    runs_.push_back({total_, count});
    total_ += (count + kSize - 1) / kSize;
    elements_ += count;
  }
  // Blocks of all runs together.
  int64_t total() const { return total_; }
  // Number of the first block of a run.
  int64_t first(size_t run) const { return runs_[run].first; }

  // Calls f(run, begin, end) over disjoint intervals of elements that cover every run. Intervals
  // begin on block borders and end on them or at the run's end.
  template <class F>
  void parallel(const F& f) const {
    // A thread is worth its fork from some 16384 elements on, which are many blocks where runs are
    // short.
    const int64_t grain = total_ * 4 * kSize / (elements_ > 0 ? elements_ : 1) + 1;
    parallel_for(0, total_, grain, [&](int64_t block, int64_t last) {
      auto run = runs_.begin() + run_of(block);
      for (; block < last; ++run) {
        const int64_t begin = (block - run->first) * kSize;
        const int64_t until = (last - run->first) * kSize;
        const int64_t end = until < run->count ? until : run->count;
        f(static_cast<size_t>(run - runs_.begin()), begin, end);
        block = run->first + (end + kSize - 1) / kSize;
        while (run + 1 != runs_.end() && run[1].count == 0)
          ++run;
      }
    });
  }

 private:
  struct Run {
    int64_t first;
    int64_t count;
  };

  // The last run that begins at or before `block`: runs without elements begin where the next one
  // does.
  std::ptrdiff_t run_of(int64_t block) const;

  std::vector<Run> runs_;
  int64_t total_ = 0;
  int64_t elements_ = 0;
};

}  // namespace weft::optim
