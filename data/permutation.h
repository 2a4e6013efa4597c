// A keyed permutation of [0, size): each index is computed on its own in O(1), so that "where in
// the epoch are we" is one number, valid at any rank count, and nothing has to be shuffled or
// stored.
//
// A balanced Feistel network over the smallest even power of two that holds `size` (Luby & Rackoff,
// "How to construct pseudorandom permutations", SIAM J. Comput. 1988), with cycle walking to stay
// inside [0, size) (Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
#pragma once

#include <array>
#include <cstdint>

namespace weft::data {

class Permutation {
 public:
  // Distinct (seed, epoch) give independent orders. Size 0 is allowed; then no index is.
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);

  int64_t size() const { return size_; }
  // The element at position `index` of the order; expects 0 <= index < size.
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t once(uint64_t value) const;

  int64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  std::array<uint32_t, kRounds> keys_;
};

}  // namespace weft::data
