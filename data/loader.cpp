#include "data/loader.h"

#include "core/parallel.h"
#include "data/permutation.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace weft::data {

// Gathers batches ahead on a thread of its own, at most `options.prefetch` of them.
class Loader::Prefetcher final : public RefCounted {
 public:
  Prefetcher(const Loader& loader, LoaderState from)
      : loader_(loader), ledger_(current_ledger()), at_(from), thread_([this] { work(); }) {}
  ~Prefetcher() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_one();
    thread_.join();
  }

  // The batch at the position after those already taken; rethrows what gathering it threw.
  Batch take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !queue_.empty() || error_; });
    if (queue_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    room_.notify_one();
    return batch;
  }

 private:
  void work() {
    const LedgerScope ledger(ledger_);          // the rank that asked pays
    set_num_threads(loader_.options_.threads);  // the other processors are training
    try {
      for (int64_t samples = 0; (samples = loader_.samples_at(at_.consumed)) > 0;
           at_.consumed += samples) {
        {
          std::unique_lock lock(mutex_);
          room_.wait(lock, [&] {
            return stopping_ || queue_.size() < static_cast<size_t>(loader_.options_.prefetch);
          });
          if (stopping_) return;
        }
        Batch batch = loader_.gather(at_);
        {
          const std::lock_guard lock(mutex_);
          queue_.push_back(std::move(batch));
        }
        filled_.notify_one();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      filled_.notify_one();
    }
  }

  const Loader& loader_;
  Ledger& ledger_;
  LoaderState at_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable room_;
  std::deque<Batch> queue_;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

Loader::Loader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(std::move(options)) {
  const LoaderOptions& given = options_;
  WEFT_CHECK(given.batch >= 1, "loader", "expected a batch of at least 1 row, got ", given.batch);
  WEFT_CHECK(given.threads >= 1, "loader", "expected at least one thread, got ", given.threads);
  WEFT_CHECK(given.prefetch >= 0, "loader", "expected a prefetch of 0 or more, got ",
             given.prefetch);
  WEFT_CHECK(given.tail != Tail::drop || dataset.size() >= given.batch, "loader",
             "expected at least one whole batch of ", given.batch,
             " when short ones are dropped, got ", dataset.size(), " samples");
  int64_t end = 0;
  for (const RowRange& range : given.rows) {
    WEFT_CHECK(given.tail != Tail::shrink, "loader",
               "expected batches of full shape where a loader gathers only some rows, got "
               "Tail::shrink");
    WEFT_CHECK(range.first >= end && range.count >= 0 && range.first + range.count <= given.batch,
               "loader", "expected rising ranges of rows within a batch of ", given.batch,
               ", got rows ", range.first, " to ", range.first + range.count);
    end = range.first + range.count;
  }
}

Loader::~Loader() = default;

int64_t Loader::samples_at(int64_t consumed) const {
  const int64_t left = dataset_.size() - consumed;
  if (left < options_.batch && options_.tail == Tail::drop) return 0;
  return std::min(left, options_.batch);
}

int64_t Loader::batches() const {
  const int64_t whole = dataset_.size() / options_.batch;
  const bool tail = dataset_.size() % options_.batch != 0 && options_.tail != Tail::drop;
  return whole + (tail ? 1 : 0);
}

Batch Loader::gather(LoaderState at) const {
  const int64_t samples = samples_at(at.consumed);
  std::vector<int64_t> indices(static_cast<size_t>(samples));
  if (options_.shuffle) {
    const Permutation order(dataset_.size(), options_.seed, static_cast<uint64_t>(at.epoch));
    for (int64_t i = 0; i < samples; ++i)
      indices[static_cast<size_t>(i)] = order(at.consumed + i);
  } else {
    for (int64_t i = 0; i < samples; ++i)
      indices[static_cast<size_t>(i)] = at.consumed + i;
  }
  int64_t targets = 0;
  for (const int64_t index : indices)
    targets += dataset_.targets_of(index);

  int64_t rows = options_.tail == Tail::shrink ? samples : options_.batch;
  if (!options_.rows.empty()) {
    std::vector<int64_t> chosen;
    rows = 0;
    for (const RowRange& range : options_.rows) {
      rows += range.count;
      const int64_t end = std::min(samples, range.first + range.count);
      if (range.first < end)
        chosen.insert(chosen.end(), indices.begin() + range.first, indices.begin() + end);
    }
    indices = std::move(chosen);
  }
  Batch batch = dataset_.gather(indices, rows, {options_.seed, static_cast<uint64_t>(at.epoch)});
  batch.whole_count = samples;
  batch.whole_targets = targets;
  return batch;
}

std::optional<Batch> Loader::next() {
  const int64_t samples = samples_at(state_.consumed);
  if (samples <= 0) {
    seek({state_.epoch + 1, 0});
    return std::nullopt;
  }
  if (options_.prefetch > 0 && !prefetcher_) prefetcher_ = make_ref<Prefetcher>(*this, state_);
  Batch batch = prefetcher_ ? prefetcher_->take() : gather(state_);
  state_.consumed += samples;
  return batch;
}

LoaderState Loader::state() const {
  return state_;
}

void Loader::seek(LoaderState state) {
  WEFT_CHECK(state.epoch >= 0 && state.consumed >= 0 && state.consumed <= dataset_.size(), "loader",
             "expected a position inside ", dataset_.size(), " samples, got epoch ", state.epoch,
             ", sample ", state.consumed);
  prefetcher_ = {};
  state_ = state;
}

}  // namespace weft::data
