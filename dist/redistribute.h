// How a flat buffer goes from one placement to another along an axis of ranks. There are four
// moves, and every strategy is made of them:
//
//   sharded    → replicated   all-gather
//   replicated → sharded      slice (no communication)
//   partial    → replicated   all-reduce
//   partial    → sharded      reduce-scatter
//
// Partial: every rank holds summands of the values; they are added in the fixed tree of
// dist/tree.h.
#pragma once

#include "dist/communicator.h"

namespace weft::dist {

enum class Placement : uint8_t { replicated, sharded, partial };
std::string to_string(Placement placement);

// sharded → replicated. `whole` has comm.size() times the elements of `shard`, which may be this
// rank's piece of it.
Call gather_move(const Elements& shard, const Elements& whole, Tag tag = {});

// replicated → sharded: this rank's piece.
Elements slice_move(const Elements& whole, const Communicator& comm);

// partial → replicated, and partial → sharded: see Communicator::all_reduce_nodes and
// reduce_scatter_nodes, which these are. With Parts of one leaf a rank they are the usual sums.
inline Call sum_move(std::vector<Part> parts, std::vector<Part> results, int64_t leaves,
                     Tag tag = {}) {
  return Communicator::all_reduce_nodes(std::move(parts), std::move(results), leaves, tag);
}
inline Call sum_slice_move(std::vector<Part> parts, std::vector<Part> pending,
                           std::vector<Part> results, int64_t leaves, Tag tag = {}) {
  return Communicator::reduce_scatter_nodes(std::move(parts), std::move(pending),
                                            std::move(results), leaves, tag);
}

// Any of the four with one summand a rank. `values` is what this rank holds under `from` (a shard,
// or the whole length), the result what it holds under `to`: a new tensor, or a view of `values`
// for a slice. The whole length must be a multiple of comm.size(). Other pairs are refused.
Tensor redistribute(const Tensor& values, Placement from, Placement to, Communicator& comm);

}  // namespace weft::dist
