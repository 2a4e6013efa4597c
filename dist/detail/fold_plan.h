// The additions of a tree as a short program, run block by block.
#pragma once

#include "dist/collective.h"

#include <span>
#include <vector>

namespace weft::dist::detail {

// A node that a fold must yield, and where to: a run of `count` elements, or several, which all get
// the same bits.
struct Target {
  Node node;
  std::vector<std::byte*> places;
  DType dtype = f32;
};

class FoldPlan {
 public:
  // `inputs` are disjoint nodes in any order, `targets` the nodes they add up to. Throws Error
  // otherwise. `op` names the caller in errors.
  FoldPlan(std::span<const Part> inputs, std::span<const Target> targets, int64_t leaves,
           ReduceOp reduce, int64_t mean_of, const char* op);

  // Elements begin .. end - 1 of all inputs and targets. A place may lie exactly on an input.
  void run(int64_t begin, int64_t end) const;

 private:
  // Where an operand is: input `index`, or accumulator `index`.
  struct Operand {
    bool input = false;
    size_t index = 0;
  };
  // accumulator[to] = a op b
  struct Step {
    size_t to;
    Operand a, b;
  };
  struct Source {
    const std::byte* data;
    DType dtype;
  };

  void run_block(int64_t begin, int64_t count, std::byte* scratch) const;
  const std::byte* operand(const Operand& at, int64_t begin, int64_t count, std::byte* scratch,
                           std::byte* widened) const;

  std::vector<Source> inputs_;
  std::vector<Target> targets_;
  std::vector<Operand> values_;  // of the targets
  std::vector<Step> steps_;
  size_t accumulators_ = 0;
  DType compute_ = f32;
  ReduceOp reduce_;
  int64_t mean_of_;
};

}  // namespace weft::dist::detail
