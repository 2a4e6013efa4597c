#include "optim/norm.h"

#include "core/parallel.h"
#include "optim/clip.h"

#include <algorithm>
#include <bit>

namespace weft::optim {
namespace {

// Groups of a subtree that is summed in one piece.
constexpr int64_t kPiece = kNormPiece / kNormGroup;

int64_t groups_of(int64_t elements) {
  return (elements + kNormGroup - 1) / kNormGroup;
}

// Where a node over groups [low, high) has its two halves.
int64_t middle(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(high - low - 1)));
}

// Calls f(low, high) for the largest nodes within groups [first, last), from left to right.
template <class F>
void cover(int64_t low, int64_t high, int64_t first, int64_t last, const F& f) {
  if (last <= low || first >= high) return;
  if (first <= low && high <= last) {
    f(low, high);
    return;
  }
  const int64_t half = middle(low, high);
  cover(low, half, first, last, f);
  cover(half, high, first, last, f);
}

template <class F>
void cover_elements(int64_t begin, int64_t end, int64_t count, const F& f) {
  const int64_t groups = groups_of(count);
  if (begin < end) cover(0, groups, begin / kNormGroup, groups_of(end), f);
}

void add(Lanes& sum, const Lanes& more) {
  for (size_t lane = 0; lane < 8; ++lane)
    sum.value[lane] += more.value[lane];
}

template <class T>
Lanes group_sum(const T* values, int64_t count) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Lanes sum;
  if (count >= kNormGroup) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const auto a = static_cast<double>(static_cast<Wide>(values[lane]));
      const auto b = static_cast<double>(static_cast<Wide>(values[lane + 8]));
      sum.value[lane] = a * a + b * b;
    }
    return sum;
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<Wide>(values[i]));
    sum.value[static_cast<size_t>(i % 8)] += value * value;
  }
  return sum;
}

// Groups [low, high) of a parameter of which `values` starts at group `first`, `count` elements in
// all from there.
template <class T>
Lanes tree_of(const T* values, int64_t first, int64_t count, int64_t low, int64_t high) {
  if (high - low == 1) {
    const int64_t at = (low - first) * kNormGroup;
    return group_sum(values + at, std::min(kNormGroup, count - at));
  }
  if (high - low == 2 && (high - first) * kNormGroup <= count) {  // most of the work ends here
    const T* at = values + (low - first) * kNormGroup;
    Lanes sum = group_sum(at, kNormGroup);
    add(sum, group_sum(at + kNormGroup, kNormGroup));
    return sum;
  }
  const int64_t half = middle(low, high);
  Lanes sum = tree_of(values, first, count, low, half);
  add(sum, tree_of(values, first, count, half, high));
  return sum;
}

// Of groups [low, high), at most kPiece of them.
template <class T>
Lanes piece_sum_as(const NormPart& part, int64_t low, int64_t high) {
  const int64_t first = part.begin / kNormGroup;
  const int64_t count = part.values.numel();
  if (!part.make) return tree_of(part.values.data<T>(), first, count, low, high);
  alignas(64) std::array<T, kNormPiece> made;
  const int64_t begin = (low - first) * kNormGroup;
  const int64_t end = std::min(count, (high - first) * kNormGroup);
  part.make(begin, end, reinterpret_cast<std::byte*>(made.data()));
  return tree_of(made.data(), low, end - begin, low, high);
}

Lanes piece_sum(const NormPart& part, int64_t low, int64_t high) {
  switch (part.values.dtype()) {
    case DType::f64:
      return piece_sum_as<double>(part, low, high);
    case DType::bf16:
      return piece_sum_as<BFloat16>(part, low, high);
    case DType::f16:
      return piece_sum_as<Float16>(part, low, high);
    default:
      return piece_sum_as<float>(part, low, high);
  }
}

// Nodes of at most kPiece groups under [low, high), from left to right.
template <class F>
void pieces(int64_t low, int64_t high, const F& f) {
  if (high - low <= kPiece) {
    f(low, high);
    return;
  }
  const int64_t half = middle(low, high);
  pieces(low, half, f);
  pieces(half, high, f);
}

// Adds up the sums of pieces() again.
Lanes gathered(int64_t low, int64_t high, const Lanes*& next) {
  if (high - low <= kPiece) return *next++;
  const int64_t half = middle(low, high);
  Lanes sum = gathered(low, half, next);
  add(sum, gathered(half, high, next));
  return sum;
}

// The nodes of parts that are cut at groups `cuts`, added up to [low, high).
Lanes joined(int64_t low, int64_t high, std::span<const int64_t> cuts, const Lanes*& next) {
  bool cut = false;
  for (const int64_t at : cuts)
    cut = cut || (low < at && at < high);
  if (!cut) return *next++;
  const int64_t half = middle(low, high);
  Lanes sum = joined(low, half, cuts, next);
  add(sum, joined(half, high, cuts, next));
  return sum;
}

}  // namespace

int64_t norm_nodes(int64_t begin, int64_t end, int64_t count) {
  int64_t nodes = 0;
  cover_elements(begin, end, count, [&](int64_t, int64_t) { ++nodes; });
  return nodes;
}

double norm_root(std::span<const Lanes> nodes, std::span<const int64_t> cuts) {
  if (nodes.empty()) return 0;
  std::vector<int64_t> groups;
  for (const int64_t cut : cuts)
    groups.push_back(groups_of(cut));
  const Lanes* next = nodes.data();
  // A cut that is no border between nodes would be a cut within a part, which has more nodes then.
  const Lanes root = joined(0, groups.back(), groups, next);
  return tree_sum(root.value.data(), 8);
}

std::vector<Lanes> norm_node_sums(std::span<const NormPart> parts) {
  struct Task {
    const NormPart* part;
    int64_t low, high;
  };
  std::vector<Task> tasks;
  for (const NormPart& part : parts) {
    cover_elements(
        part.begin, part.begin + part.values.numel(), part.count, [&](int64_t low, int64_t high) {
          pieces(low, high, [&](int64_t a, int64_t b) { tasks.push_back({&part, a, b}); });
        });
  }
  std::vector<Lanes> sums(tasks.size());
  parallel_for(0, static_cast<int64_t>(tasks.size()), 8, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      sums[i] = piece_sum(*tasks[i].part, tasks[i].low, tasks[i].high);
  });
  std::vector<Lanes> nodes;
  const Lanes* next = sums.data();
  for (const NormPart& part : parts) {
    cover_elements(part.begin, part.begin + part.values.numel(), part.count,
                   [&](int64_t low, int64_t high) { nodes.push_back(gathered(low, high, next)); });
  }
  return nodes;
}

std::vector<double> square_sums(std::span<const ShardedParameter> all,
                                std::span<const NormPart> parts,
                                std::span<const size_t> parameter_of, Sharding* sharding) {
  // Room for the nodes of every part of every parameter; this rank fills in those of its own.
  std::vector<std::vector<size_t>> part_at(all.size());
  size_t total = 0;
  for (size_t p = 0; p < all.size(); ++p) {
    for (size_t c = 0; c + 1 < all[p].cuts.size(); ++c) {
      part_at[p].push_back(total);
      total += static_cast<size_t>(norm_nodes(all[p].cuts[c], all[p].cuts[c + 1], all[p].count));
    }
    part_at[p].push_back(total);
  }
  const std::vector<Lanes> mine = norm_node_sums(parts);
  std::vector<Lanes> nodes(total);
  size_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t begin = parts[i].begin;
    const ShardedParameter& whole = all[parameter_of[i]];
    const auto cut = std::find(whole.cuts.begin(), whole.cuts.end(), begin);
    WEFT_CHECK(cut != whole.cuts.end(), "square_sums", "expected a part of ", whole.name,
               " that begins at a cut, got ", begin);
    const size_t at = part_at[parameter_of[i]][static_cast<size_t>(cut - whole.cuts.begin())];
    const int64_t many = norm_nodes(begin, begin + parts[i].values.numel(), parts[i].count);
    for (int64_t n = 0; n < many; ++n)
      nodes[at + static_cast<size_t>(n)] = mine[next++];
  }
  if (sharding) sharding->sum({reinterpret_cast<double*>(nodes.data()), nodes.size() * 8});

  std::vector<double> sums;
  for (size_t p = 0; p < all.size(); ++p) {
    sums.push_back(norm_root(
        std::span(nodes).subspan(part_at[p].front(), part_at[p].back() - part_at[p].front()),
        all[p].cuts));
  }
  return sums;
}

std::vector<double> square_sums(const Parameters& parameters, std::span<const Tensor> values) {
  const auto& sharding = parameters.sharding();
  std::vector<ShardedParameter> own;
  if (!sharding) {
    for (const auto& [name, tensor] : parameters.list())
      own.push_back({name, tensor.numel(), {0, tensor.numel()}, tensor.dims()});
  }
  const auto& all = sharding ? sharding->all() : own;
  std::vector<NormPart> parts;
  std::vector<size_t> parameter_of;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined() || values[i].numel() == 0) continue;
    const Sharding::Place place =
        sharding ? sharding->place(parameters.list()[i].tensor) : Sharding::Place{i, 0};
    parts.push_back({values[i], place.begin, all[place.parameter].count});
    parameter_of.push_back(place.parameter);
  }
  return square_sums(all, parts, parameter_of, sharding.get());
}

}  // namespace weft::optim
