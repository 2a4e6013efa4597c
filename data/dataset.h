// What a data set is to a loader: a number of samples, and a way to fill a batch with chosen ones.
#pragma once

#include "core/tensor.h"

#include <span>
#include <string>

namespace weft::data {

// Targets of rows that hold no sample; cross_entropy leaves them out (its default ignore_index).
inline constexpr int64_t kNoTarget = -100;

struct Batch {
  Tensor inputs;      // [rows, …]: f32, or i64 where samples are tokens
  Tensor targets;     // i64 [rows], or [rows, …] where a sample has many; kNoTarget where a row
                      // holds no sample. Or f32 [rows, classes]: shares (mixing.h), zeros there
  int64_t count = 0;  // rows that hold a sample; they come first
  // Of the whole batch, where this is only some of its rows: rows that hold a sample, and targets.
  int64_t whole_count = 0;
  int64_t whole_targets = 0;
};

// Where the randomness of a sample's transforms comes from: it depends on (seed, epoch, sample)
// alone.
struct EpochKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
};

// Sizes and gather() may be called from any thread, several at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // How many targets a sample holds.
  virtual int64_t targets_of(int64_t /*index*/) const { return 1; }
  // Shape of one input.
  virtual Shape sample_shape() const = 0;
  // What tells these samples from others of the same number and shape, for people to read: the same
  // wherever the same samples come in the same order, other where labels or files differ. Empty:
  // not known.
  virtual std::string identity() const { return {}; }
  // Fills a new batch of `rows` rows with the samples of `indices`, in that order; rows beyond them
  // are zero. Expects indices in [0, size()).
  virtual Batch gather(std::span<const int64_t> indices, int64_t rows,
                       const EpochKey& key) const = 0;
};

}  // namespace weft::data
