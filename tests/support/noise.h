// Numbers that the golden generators in Python compute alike.
#pragma once

#include "core/tensor.h"

namespace weft::test {

// `count` numbers in [-0.5, 0.5), exact in f32: a 32-bit hash of (salt, index).
inline Tensor noise(uint64_t salt, int64_t count) {
  const Tensor out = empty({count});
  for (int64_t i = 0; i < count; ++i) {
    auto h = static_cast<uint32_t>(static_cast<uint64_t>(i) + salt * 0x9e3779b9u);
    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    h *= 0x846ca68bu;
    h ^= h >> 16;
    out.data<float>()[i] = static_cast<float>(static_cast<double>(h >> 8) / 16777216.0 - 0.5);
  }
  return out;
}

}  // namespace weft::test
