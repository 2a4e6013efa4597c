// The one order of a sum.
//
// What is summed over ranks (or over logical shards of the batch) are numbered leaves 0 .. n-1.
// They are added in one fixed binary tree: node (level, index) is node (level-1, 2 index) + node
// (level-1, 2 index + 1), and a node whose right half has no leaves is its left half. Whoever adds,
// wherever the leaves ran, and however many ranks there are, the same pairs are added, so the same
// bits come out. A rank that ran a contiguous run of leaves holds O(log n) nodes that cover it.
#pragma once

#include "dist/collective.h"

#include <vector>

namespace weft::dist {

// The root of a tree over `leaves` leaves.
Node root_of(int64_t leaves);
// Moves a node up as long as its sibling has no leaves.
Node raised(Node node, int64_t leaves);
// The nodes, from left to right, that a set of leaves adds up to: the fewest that cover leaves
// first .. first + count - 1.
std::vector<Node> covering(int64_t first, int64_t count, int64_t leaves);
// The nodes that remain of `nodes` (sorted from left to right, disjoint) when all siblings that are
// both there have been added.
std::vector<Node> merged(std::span<const Node> nodes, int64_t leaves);
// First leaf of a node.
inline int64_t first_leaf(Node node) {
  return static_cast<int64_t>(node.index) << node.level;
}

// Adds `inputs` (disjoint nodes, in any order) up to `results`, which must be the nodes that
// merged() names. Counts are equal. Inputs and results may be of different dtypes where both are
// floating: 16-bit values are widened to f32, and rounded where a result is of 16 bits. A result
// may lie exactly on an input, else they must not overlap. `mean_of` > 0 divides by it at the end.
// Uses this thread's num_threads(); the bits do not depend on it.
void fold(std::span<const Part> inputs, std::span<const Part> results, int64_t leaves,
          ReduceOp op = ReduceOp::sum, int64_t mean_of = 0);

}  // namespace weft::dist
