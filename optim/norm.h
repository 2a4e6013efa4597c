// Sums of squares whose bits do not depend on where a parameter is cut.
//
// The elements of a parameter, in memory order, form groups of kNormGroup; a group is eight lanes
// in f64, lane i being x[i]^2 + x[i + 8]^2, and groups are added lane by lane in a binary tree: a
// run of n groups is split at the largest power of two below n. At the root the lanes are added in
// a tree, too. A part that begins on a group's border covers O(log n) nodes of the tree; the nodes
// of all parts together give the root, whatever the cuts.
#pragma once

#include "core/function.h"
#include "core/tensor.h"
#include "optim/parameters.h"

#include <array>
#include <span>
#include <vector>

namespace weft::optim {

inline constexpr int64_t kNormGroup = 16;

struct Lanes {
  std::array<double, 8> value{};
};

// Nodes that cover elements [begin, end) of a parameter of `count` elements.
int64_t norm_nodes(int64_t begin, int64_t end, int64_t count);
// The root, from the nodes of all parts from left to right. 0 for an empty parameter.
double norm_root(std::span<const Lanes> nodes, std::span<const int64_t> cuts);

// A part of a parameter: `values` (f32, f64, bf16 or f16, without gaps) are its elements from
// `begin` on.
struct NormPart {
  Tensor values;
  int64_t begin = 0;
  int64_t count = 0;  // of the whole parameter
  // If given, what is squared in place of `values`, which tell its dtype and number: a function
  // that writes elements [first, last) of the part, never more than kNormPiece, to `to`. Threads
  // call it at once. Quantities that are used for their norm alone need no memory so.
  Function<void(int64_t first, int64_t last, std::byte* to)> make = {};
};
inline constexpr int64_t kNormPiece = 4096;
// The nodes of each part, one part after the other. Uses this thread's num_threads().
std::vector<Lanes> norm_node_sums(std::span<const NormPart> parts);

// The sum of squares of every parameter of `all`, summed over all ranks that hold parts of them.
// parts[i] is one of parameter parameter_of[i], and begins at a cut of it; without `sharding`
// they are whole.
std::vector<double> square_sums(std::span<const ShardedParameter> all,
                                std::span<const NormPart> parts,
                                std::span<const size_t> parameter_of, Sharding* sharding);

// The sum of squares of every parameter of `parameters`, summed over all ranks that hold parts of
// them; `value` gives what is squared for the n-th listed tensor (undefined stands for zeros). One
// entry a parameter: Sharding::all() where there is one, else the list itself.
template <class F>
std::vector<double> square_sums(const Parameters& parameters, const F& value);
std::vector<double> square_sums(const Parameters& parameters, std::span<const Tensor> values);

template <class F>
std::vector<double> square_sums(const Parameters& parameters, const F& value) {
  std::vector<Tensor> values;
  for (size_t i = 0; i < parameters.list().size(); ++i)
    values.push_back(value(i));
  return square_sums(parameters, std::span<const Tensor>(values));
}

}  // namespace weft::optim
