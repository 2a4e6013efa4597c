#include "dist/tree.h"

#include "core/parallel.h"
#include "dist/detail/combine.h"
#include "dist/detail/fold_plan.h"

#include <algorithm>
#include <bit>

namespace weft::dist {

Node root_of(int64_t leaves) {
  WEFT_CHECK(leaves >= 1 && leaves <= INT32_MAX, "tree", "expected 1 to 2^31 - 1 leaves, got ",
             leaves);
  return {static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(leaves - 1))), 0};
}

Node raised(Node node, int64_t leaves) {
  const int32_t top = root_of(leaves).level;
  while (node.level < top) {
    const Node sibling{node.level, node.index ^ 1};
    if (first_leaf(sibling) < leaves) break;
    node = {node.level + 1, node.index / 2};
  }
  return node;
}

std::vector<Node> covering(int64_t first, int64_t count, int64_t leaves) {
  WEFT_CHECK(first >= 0 && count >= 0 && count <= leaves - first, "tree",
             "expected a run of leaves out of ", leaves, ", got ", count, " from ", first);
  const int32_t top = root_of(leaves).level;
  std::vector<Node> nodes;
  for (int64_t at = first; at < first + count;) {
    // The highest node that starts here and has no leaf past the run.
    int32_t level = 0;
    while (level < top && at % (int64_t{2} << level) == 0 &&
           std::min(leaves, at + (int64_t{2} << level)) <= first + count) {
      ++level;
    }
    nodes.push_back({level, static_cast<int32_t>(at >> level)});
    at += int64_t{1} << level;
  }
  return nodes;
}

std::vector<Node> merged(std::span<const Node> nodes, int64_t leaves) {
  std::vector<Node> stack;
  for (const Node node : nodes) {
    stack.push_back(raised(node, leaves));
    while (stack.size() >= 2) {
      const Node b = stack.back();
      const Node a = stack[stack.size() - 2];
      if (a.level != b.level || (a.index ^ 1) != b.index) break;
      stack.resize(stack.size() - 2);
      stack.push_back(raised({a.level + 1, a.index / 2}, leaves));
    }
  }
  return stack;
}

void fold(std::span<const Part> inputs, std::span<const Part> results, int64_t leaves, ReduceOp op,
          int64_t mean_of) {
  std::vector<detail::Target> targets;
  for (const Part& result : results)
    targets.push_back({result.node, {result.values.data}, result.values.dtype});
  int64_t count = results.empty() ? 0 : results[0].values.count;
  for (const auto& parts : {inputs, results}) {
    for (const Part& part : parts)
      WEFT_CHECK(part.values.count == count, "fold", "expected ", count,
                 " elements in every node, got ", part.values.count);
  }
  const detail::FoldPlan plan(inputs, targets, leaves, op, mean_of, "fold");
  parallel_for(0, count, 32 * detail::kBlock,
               [&](int64_t begin, int64_t end) { plan.run(begin, end); });
}

}  // namespace weft::dist
