// The loader: batches of a data set in a keyed order, gathered in the background.
#pragma once

#include "data/dataset.h"

#include <optional>
#include <vector>

namespace weft::data {

// What becomes of the last batch of an epoch when the samples do not fill it.
enum class Tail {
  mask,    // full shape; the empty rows have no target, so that each sample counts exactly once
  shrink,  // fewer rows
  drop,    // left out
};

// Rows first .. first + count - 1 of a batch.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct LoaderOptions {
  int64_t batch = 64;  // rows
  uint64_t seed = 0;
  bool shuffle = true;
  Tail tail = Tail::mask;
  // The rows of every batch that this loader gathers, one range after the other and rising: what
  // one rank of several trains on. Empty: all. Not with Tail::shrink.
  std::vector<RowRange> rows = {};
  int prefetch = 2;  // batches gathered ahead in the background; 0 gathers in next()
  int threads = 1;   // that gather a batch in the background; what they gather is the same
};

// Where a loader is: saved with a checkpoint, it continues with the very next sample, at any batch
// size.
struct LoaderState {
  int64_t epoch = 0;
  int64_t consumed = 0;  // samples of this epoch already given out
};

// Owned by one thread, which calls all of it. `dataset` must outlive the loader.
class Loader {
 public:
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; nothing at the end of the epoch, after which the next call begins the next
  // epoch. What goes wrong in the background is thrown here. Waits as long as the data set takes: a
  // file system that does not answer holds this thread, and the destructor, until it does (under a
  // dist::Trainer with several ranks the heartbeat ends such a run).
  std::optional<Batch> next();

  // Batches of a whole epoch.
  int64_t batches() const;
  LoaderState state() const;
  // Goes on from `state`; gathered batches are dropped.
  void seek(LoaderState state);

 private:
  class Prefetcher;

  Batch gather(LoaderState at) const;
  // Samples in the batch that starts at `consumed`, and whether there is one.
  int64_t samples_at(int64_t consumed) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  LoaderState state_;
  Ref<Prefetcher> prefetcher_;
};

}  // namespace weft::data
