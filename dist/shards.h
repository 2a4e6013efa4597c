// Logical shards: the global batch of a step is cut into V of them, each a micro-batch of fixed
// size. They are the leaves of the summation tree, so what a step computes depends on V alone; how
// many ranks there are only decides who runs which.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::dist {

struct Shard {
  int64_t index = 0;  // which of the step's shards: rows [index, index + 1) * global batch / of
  int64_t of = 1;
  // In lock-step strategies a rank without a shard left runs another one along; it counts for
  // nothing.
  bool ghost = false;

  // This shard's first row and number of rows; `global_batch` must be a multiple of `of`.
  int64_t rows(int64_t global_batch) const { return global_batch / of; }
  int64_t first_row(int64_t global_batch) const { return index * rows(global_batch); }
};

enum class ShardOrder : uint8_t {
  contiguous,  // a run: the rank adds up its subtrees by itself and communicates once
  strided,  // round m holds shards m W … m W + W - 1, one a rank: gradients are reduced each round
};

// The shards that `rank` of `ranks` runs, in order. Expects ranks <= shards. With `lock_step`,
// lists have equal lengths on all ranks, with ghosts at the end; strided ones always do.
std::vector<Shard> shards_of(int rank, int ranks, int64_t shards, ShardOrder order,
                             bool lock_step = false);

}  // namespace weft::dist
