#include "dist/detail/snapshot.h"

#include "core/parallel.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGrain = int64_t{1} << 20;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void copy_past_caches(std::byte* to, const std::byte* from, int64_t count) {
  int64_t at = 0;
#ifdef __AVX__
  // Streaming stores want aligned addresses.
  at = std::min(count, -reinterpret_cast<intptr_t>(to) & 31);
  std::memcpy(to, from, static_cast<size_t>(at));
  for (; at + 128 <= count; at += 128) {
    __m256i block[4];
    for (int i = 0; i < 4; ++i)
      block[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at) + i);
    for (int i = 0; i < 4; ++i)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at) + i, block[i]);
  }
  _mm_sfence();
#endif
  std::memcpy(to + at, from + at, static_cast<size_t>(count - at));
}

}  // namespace

void copy_all(const std::vector<Copy>& copies) {
  // In short runs, so that a long one is shared by all threads.
  std::vector<Copy> runs;
  for (const Copy& copy : copies) {
    for (int64_t at = 0; at < copy.count; at += kGrain)
      runs.push_back({copy.to + at, copy.from + at, std::min(kGrain, copy.count - at)});
  }
  parallel_for(0, static_cast<int64_t>(runs.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Copy& run = runs[static_cast<size_t>(i)];
      copy_past_caches(run.to, run.from, run.count);
    }
  });
}

void take_snapshot(std::vector<Piece>& pieces) {
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (const Piece& piece : pieces) {
    offsets.push_back(total);
    total += aligned(piece.bytes());
  }
  const CategoryScope scope(Category::other);
  const Tensor copy = empty({total}, {.dtype = u8});
  std::vector<Copy> copies;
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::byte* const to = copy.raw() + offsets[i];
    if (pieces[i].count > 0) copies.push_back({to, pieces[i].data, pieces[i].bytes()});
    pieces[i].data = to;
    pieces[i].memory = copy;
  }
  copy_all(copies);
}

}  // namespace weft::dist::detail
