// Batches before they are filled.
#pragma once

#include "core/error.h"
#include "core/parallel.h"
#include "data/dataset.h"

#include <algorithm>
#include <atomic>

namespace weft::data::detail {

void check_indices(std::span<const int64_t> indices, int64_t size);

// Of Dataset::identity(): "`of` 0123abcd", a CRC32C of the bytes.
std::string identity_of(const char* of, const void* bytes, size_t count, uint32_t before = 0);

// f32 [rows, sample…] and i64 [rows]; rows from `count` on are zero and have no target.
Batch plain_batch(const Shape& sample, int64_t count, int64_t rows);
// The same for samples [C, H, W], stored N, H, W, C.
Batch image_batch(const Shape& sample, int64_t count, int64_t rows);

// Calls start() once a thread, and what it returns with each of 0 … count - 1, on this thread's
// num_threads(). A thread that is done with one takes the next: some take longer than others.
// Rethrows the first exception; others are then left.
template <class Start>
void each_in_turn(int64_t count, const Start& start) {
  std::atomic<int64_t> next{0};
  const int64_t workers = std::min<int64_t>(num_threads(), count);
  parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    auto body = start();
    try {
      for (int64_t i = next++; i < count; i = next++)
        body(i);
    } catch (...) {
      next = count;
      throw;
    }
  });
}

}  // namespace weft::data::detail
