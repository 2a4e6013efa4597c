#include "data/permutation.h"

#include "core/error.h"
#include "core/random.h"

#include <bit>

namespace weft::data {
namespace {

constexpr uint32_t kOrderStream =
    0x6f726472;  // keeps the order apart from all other draws of the seed

// A 32-bit mixer: every input bit reaches every output bit (multiply and xor-shift rounds).
uint32_t mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x7feb352du;
  value ^= value >> 15;
  value *= 0x846ca68bu;
  return value ^ (value >> 16);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  WEFT_CHECK(size >= 0 && size <= (int64_t{1} << 60), "permutation",
             "expected a size of 0 to 2^60, got ", size);
  const int bits = size > 1 ? std::bit_width(static_cast<uint64_t>(size - 1)) : 1;
  half_bits_ = (bits + 1) / 2;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  for (size_t i = 0; i < keys_.size(); i += 4) {
    const auto words =
        philox({.seed = seed, .step = epoch, .shard = 0, .stream = kOrderStream}, i / 4);
    for (size_t k = 0; k < 4; ++k)
      keys_[i + k] = words[k];
  }
}

uint64_t Permutation::once(uint64_t value) const {
  uint64_t left = value >> half_bits_;
  uint64_t right = value & half_mask_;
  for (const uint32_t key : keys_) {
    const uint64_t next = left ^ (mix(static_cast<uint32_t>(right) ^ key) & half_mask_);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  WEFT_CHECK(index >= 0 && index < size_, "permutation", "expected an index in [0, ", size_,
             "), got ", index);
  auto value = static_cast<uint64_t>(index);
  do {
    value = once(value);
  } while (value >= static_cast<uint64_t>(
                        size_));  // the domain is at most 4 × size: 4 steps expected at worst
  return static_cast<int64_t>(value);
}

}  // namespace weft::data
