#include "dist/shards.h"

#include "core/error.h"

namespace weft::dist {

std::vector<Shard> shards_of(int rank, int ranks, int64_t shards, ShardOrder order,
                             bool lock_step) {
  WEFT_CHECK(shards >= ranks, "logical_shards",
             "expected at least as many logical shards as ranks (", ranks, "), got ", shards);
  std::vector<Shard> result;
  if (order == ShardOrder::contiguous) {
    const int64_t end = (rank + 1) * shards / ranks;
    for (int64_t index = rank * shards / ranks; index < end; ++index)
      result.push_back({index, shards, false});
    const auto longest = static_cast<size_t>((shards + ranks - 1) / ranks);
    if (lock_step) result.resize(longest, {result.front().index, shards, true});
    return result;
  }
  for (int64_t first = 0; first < shards; first += ranks) {
    const int64_t index = first + rank;
    const bool ghost = index >= shards;
    result.push_back({ghost ? rank : index, shards, ghost});
  }
  return result;
}

}  // namespace weft::dist
