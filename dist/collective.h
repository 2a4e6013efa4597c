// What a collective is: the operation, the memory it works on, and what it is for.
#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::dist {

enum class Collective : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier,
  split,
};
inline constexpr int kCollectives = 12;
const char* name_of(Collective collective);

// `mean` is the sum divided by the number of ranks, and needs a floating dtype. 16-bit sums are
// formed in f32 and rounded once.
enum class ReduceOp : uint8_t { sum, mean, max, min, product };
const char* name_of(ReduceOp op);

// A run of elements in memory: f32, f64, bf16, f16, i64, i32 or u8. Not owned: it must stay valid,
// and unused by anybody else, until the collective has completed.
struct Elements {
  std::byte* data = nullptr;
  int64_t count = 0;
  DType dtype = f32;

  Elements() = default;
  Elements(void* at, int64_t elements, DType of)
      : data(static_cast<std::byte*>(at)), count(elements), dtype(of) {}
  // A tensor without gaps in memory (any dense layout: its elements in memory order).
  Elements(const Tensor& tensor);

  int64_t bytes() const { return count * size_of(dtype); }
  // Elements begin .. begin + size - 1.
  Elements part(int64_t begin, int64_t size) const {
    return {data + begin * size_of(dtype), size, dtype};
  }
};

// What the data of a collective are: ranks compare it, errors and traces show it. For gradients and
// parameters, the unit's name and the interval of its flat buffer.
struct Tag {
  std::string_view unit = {};  // at most kLength characters count
  int64_t begin = 0;
  int64_t end = 0;

  static constexpr size_t kLength = 47;
};

// A node of the summation tree over `leaves` summands (dist/tree.h): at height `level` it is the
// sum of leaves [index << level, (index + 1) << level), as far as there are that many.
struct Node {
  int32_t level = 0;
  int32_t index = 0;
  bool operator==(const Node&) const = default;
};

// One node's partial sums.
struct Part {
  Node node;
  Elements values;
};

}  // namespace weft::dist
