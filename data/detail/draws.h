// The random draws of one sample: each use has a number of its own, whatever else is drawn.
#pragma once

#include "core/random.h"
#include "data/dataset.h"

namespace weft::data::detail {

enum class Draw : uint32_t {
  flip,
  shift_x,
  shift_y,
  rotate,
  translate_x,
  translate_y,
  brightness,
  contrast,
  saturation,
  hue,
  jitter_order,
  erase,
  crop,                         // four a try: area, aspect, x, y
  erase_box = crop + 4 * 10,    // as many
  mixing = erase_box + 4 * 10,  // whom with, which way, where; then two a try of a share
};

class Draws {
 public:
  Draws(const EpochKey& key, int64_t sample) : key_(key), sample_(static_cast<uint64_t>(sample)) {}

  // 32 random bits: number `offset` of this use.
  uint32_t bits(Draw use, uint32_t offset = 0) {
    const uint32_t number = static_cast<uint32_t>(use) + offset;
    if (number / 4 != block_) {
      block_ = number / 4;
      words_ = philox(
          {.seed = key_.seed, .step = key_.epoch, .shard = 0, .stream = kFirstStream + block_},
          sample_);
    }
    return words_[number % 4];
  }
  // In [0, 1).
  double uniform(Draw use, uint32_t offset = 0) {
    return static_cast<double>(bits(use, offset)) * 0x1p-32;
  }
  double uniform(Draw use, double low, double high, uint32_t offset = 0) {
    return low + (high - low) * uniform(use, offset);
  }
  // An integer in [0, bound), bound at most 2^32.
  int64_t below(Draw use, int64_t bound, uint32_t offset = 0) {
    return static_cast<int64_t>(bits(use, offset) * static_cast<uint64_t>(bound) >> 32);
  }

 private:
  static constexpr uint32_t kFirstStream = 0x61756731;

  EpochKey key_;
  uint64_t sample_;
  uint32_t block_ = UINT32_MAX;
  std::array<uint32_t, 4> words_{};
};

}  // namespace weft::data::detail
