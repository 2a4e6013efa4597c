#include "tests/support/collective_checks.h"

#include "core/random.h"
#include "dist/tree.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

namespace weft::test {
namespace {

using namespace dist;

// A run of elements whose values can be written and read as doubles.
class Buffer {
 public:
  Buffer(Communicator& comm, int64_t count, DType dtype, bool allocated)
      : storage_(allocated ? comm.allocate(count * size_of(dtype))
                           : Storage::allocate(count * size_of(dtype))),
        values_(storage_->data(), count, dtype) {}

  operator Elements() const { return values_; }
  Elements part(int64_t begin, int64_t size) const { return values_.part(begin, size); }
  void fill(const std::function<double(int64_t)>& value) const {
    for (int64_t i = 0; i < values_.count; ++i)
      set(i, value(i));
  }
  double get(int64_t i) const {
    return dispatch_all(values_.dtype, [&]<class T>() {
      const T value = reinterpret_cast<const T*>(values_.data)[i];
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        return static_cast<double>(static_cast<float>(value));
      } else {
        return static_cast<double>(value);
      }
    });
  }

 private:
  void set(int64_t i, double value) const {
    dispatch_all(values_.dtype, [&]<class T>() {
      auto* to = reinterpret_cast<T*>(values_.data) + i;
      if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        *to = T(static_cast<float>(value));
      } else {
        *to = static_cast<T>(value);
      }
    });
  }
  Ref<Storage> storage_;
  Elements values_;
};

// Small whole numbers, so that every dtype holds every result exactly.
double value_of(int rank, int64_t i) {
  return static_cast<double>(1 + (rank * 5 + i * 3 + i / 7) % 3);
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw Error("check failed: " + what);
}

struct Check {
  Communicator& comm;
  DType dtype;
  int64_t count;
  bool allocated;

  int size() const { return comm.size(); }
  int rank() const { return comm.rank(); }
  Buffer buffer(int64_t elements) const { return {comm, elements, dtype, allocated}; }
  void same(const Buffer& buffer, const std::string& name, int64_t elements,
            const std::function<double(int64_t)>& expected) const {
    for (int64_t i = 0; i < elements; ++i) {
      const double value = expected(i);
      if (buffer.get(i) != value) {
        throw Error(concat({"check failed: ", name, " of ", count, " x ", dtype, " on rank ",
                            rank(), " of ", size(), allocated ? ", allocated" : "", ": element ", i,
                            " expected ", value, ", got ", buffer.get(i)}));
      }
    }
  }
  double reduced(ReduceOp op, int64_t i) const {
    double result = value_of(0, i);
    for (int r = 1; r < size(); ++r) {
      const double x = value_of(r, i);
      if (op == ReduceOp::product) {
        result *= x;
      } else if (op == ReduceOp::max) {
        result = std::max(result, x);
      } else if (op == ReduceOp::min) {
        result = std::min(result, x);
      } else {
        result += x;
      }
    }
    if (op == ReduceOp::mean) result /= size();
    return op == ReduceOp::mean ? rounded(result) : result;
  }
  double rounded(double x) const {
    if (dtype == f64) return x;
    const auto f = static_cast<float>(x);
    if (dtype == bf16) return static_cast<double>(static_cast<float>(BFloat16(f)));
    if (dtype == f16) return static_cast<double>(static_cast<float>(Float16(f)));
    return static_cast<double>(f);
  }

  void reductions() const {
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
      if (op == ReduceOp::mean && !is_floating(dtype)) continue;
      const auto mine = [&](int64_t i) { return value_of(rank(), i); };
      const auto expected = [&](int64_t i) { return reduced(op, i); };
      const std::string name = name_of(op);

      const Buffer values = buffer(count);
      values.fill(mine);
      comm.all_reduce(values, op, {.unit = "weights", .begin = 0, .end = count});
      same(values, "all_reduce " + name, count, expected);

      const int root = size() - 1;
      values.fill(mine);
      comm.reduce(values, root, op);
      same(values, "reduce " + name, count,
           [&](int64_t i) { return rank() == root ? expected(i) : mine(i); });

      const Buffer whole = buffer(count * size());
      const Buffer piece = buffer(count);
      whole.fill(mine);
      comm.reduce_scatter(whole, piece, op);
      const int64_t first = rank() * count;
      same(piece, "reduce_scatter " + name, count, [&](int64_t i) { return expected(first + i); });
      comm.reduce_scatter(whole, whole.part(first, count), op);
      same(whole, "reduce_scatter in place " + name, count * size(),
           [&](int64_t i) { return i >= first && i < first + count ? expected(i) : mine(i); });
    }
  }

  void moves() const {
    const auto mine = [&](int64_t i) { return value_of(rank(), i); };
    const auto joined = [&](int64_t i) { return value_of(static_cast<int>(i / count), i % count); };
    const auto zero = [](int64_t) { return 0.0; };
    const Buffer piece = buffer(count);
    const Buffer whole = buffer(count * size());
    const Buffer other = buffer(count * size());

    piece.fill(mine);
    comm.all_gather(piece, whole);
    same(whole, "all_gather", count * size(), joined);
    whole.fill(zero);
    const Buffer& in_place = other;
    in_place.fill(
        [&](int64_t i) { return i / std::max<int64_t>(count, 1) == rank() ? joined(i) : 0; });
    comm.all_gather(in_place.part(rank() * count, count), in_place);
    same(in_place, "all_gather in place", count * size(), joined);

    for (const int root : {0, size() - 1}) {
      piece.fill(mine);
      comm.broadcast(piece, root);
      same(piece, "broadcast", count, [&](int64_t i) { return value_of(root, i); });

      piece.fill(mine);
      whole.fill(zero);
      comm.gather(piece, whole, root);
      same(whole, "gather", count * size(),
           [&](int64_t i) { return rank() == root ? joined(i) : zero(i); });
      whole.fill(joined);
      piece.fill(zero);
      comm.scatter(whole, piece, root);
      same(piece, "scatter", count, mine);
    }

    whole.fill(
        [&](int64_t i) { return value_of(rank() + static_cast<int>(i / count), i % count); });
    comm.all_to_all(whole, other);
    same(other, "all_to_all", count * size(),
         [&](int64_t i) { return value_of(static_cast<int>(i / count) + rank(), i % count); });

    // Around a ring, twice, even ranks sending first; of an odd number the last waits its turn.
    if (size() > 1) {
      const int next = (rank() + 1) % size();
      const int previous = (rank() + size() - 1) % size();
      const Buffer received = buffer(count);
      for (int turn = 0; turn < 2; ++turn) {
        piece.fill(mine);
        if (rank() % 2 == 0) comm.send(piece, next);
        comm.recv(received, previous);
        if (rank() % 2 != 0) comm.send(piece, next);
        same(received, "recv", count, [&](int64_t i) { return value_of(previous, i); });
      }
    }
    comm.barrier();
  }
};

// Node of the naive tree: left half + right half, halves without leaves left out.
std::optional<float> tree(const std::vector<float>& leaf, int level, int64_t index) {
  const auto leaves = static_cast<int64_t>(leaf.size());
  if (index << level >= leaves) return {};
  if (level == 0) return leaf[static_cast<size_t>(index)];
  const auto left = tree(leaf, level - 1, 2 * index);
  const auto right = tree(leaf, level - 1, 2 * index + 1);
  return right ? *left + *right : *left;
}

float leaf_value(int64_t leaf, int64_t i) {
  return random_uniform({.seed = 7}, static_cast<uint64_t>(leaf * 1'000'003 + i)) - 0.5f;
}

float sum_of(int64_t leaves, int64_t i) {
  std::vector<float> column;
  for (int64_t leaf = 0; leaf < leaves; ++leaf)
    column.push_back(leaf_value(leaf, i));
  const Node root = root_of(leaves);
  return tree(column, root.level, root.index).value();
}

// This rank's leaves, folded to the nodes that cover them.
struct LeafRun {
  std::vector<std::vector<float>> memory;
  std::vector<Part> parts;

  LeafRun(int64_t first, int64_t count, int64_t leaves, int64_t elements) {
    std::vector<std::vector<float>> leaf_memory;
    std::vector<Part> inputs;
    for (int64_t leaf = first; leaf < first + count; ++leaf) {
      leaf_memory.emplace_back(static_cast<size_t>(elements));
      for (int64_t i = 0; i < elements; ++i)
        leaf_memory.back()[static_cast<size_t>(i)] = leaf_value(leaf, i);
      inputs.push_back(
          {{0, static_cast<int32_t>(leaf)}, {leaf_memory.back().data(), elements, f32}});
    }
    const auto nodes = covering(first, count, leaves);
    memory.assign(nodes.size(), std::vector<float>(static_cast<size_t>(elements)));
    for (size_t i = 0; i < nodes.size(); ++i)
      parts.push_back({nodes[i], {memory[i].data(), elements, f32}});
    fold(inputs, parts, leaves);
  }
};

}  // namespace

void check_collectives(Communicator& comm, DType dtype, int64_t count, bool allocated) {
  const Check check{comm, dtype, count, allocated};
  check.reductions();
  check.moves();
}

void check_all_collectives(Communicator& comm) {
  for (const DType dtype : {f32, f64, bf16, f16, i64, i32, u8}) {
    for (const int64_t count : {0, 1, 7, 1100}) {
      for (const bool allocated : {false, true})
        check_collectives(comm, dtype, count, allocated);
    }
  }
  for (const bool allocated : {false, true})
    check_collectives(comm, f32, 20'003, allocated);
}

void check_node_sums(Communicator& comm, int64_t leaves, int64_t count) {
  const int size = comm.size();
  const int64_t whole = count * size;
  std::vector<float> expected(static_cast<size_t>(whole));
  for (int64_t i = 0; i < whole; ++i)
    expected[static_cast<size_t>(i)] = sum_of(leaves, i);
  // Cuts: as even as can be, everything on one rank, everything on the last.
  for (int way = 0; way < 3; ++way) {
    int64_t first = leaves * comm.rank() / size;
    int64_t last = leaves * (comm.rank() + 1) / size;
    if (way > 0) {
      const int holder = way == 1 ? 0 : size - 1;
      first = comm.rank() <= holder ? 0 : leaves;
      last = comm.rank() < holder ? 0 : leaves;
    }
    {
      LeafRun run(first, last - first, leaves, whole);
      std::vector<float> out(static_cast<size_t>(whole));
      comm.run(Communicator::all_reduce_nodes(
          run.parts, {{root_of(leaves), {out.data(), whole, f32}}}, leaves));
      expect(out == expected, concat({"all_reduce of nodes, ", leaves, " leaves, way ", way}));
      if (!run.parts.empty()) {  // the result may lie on a part
        comm.run(Communicator::all_reduce_nodes(run.parts, {{root_of(leaves), run.parts[0].values}},
                                                leaves));
        expect(run.memory[0] == expected, "all_reduce of nodes on a part");
      } else {
        comm.run(Communicator::all_reduce_nodes(
            run.parts, {{root_of(leaves), {out.data(), whole, f32}}}, leaves));
      }
    }
    {
      LeafRun run(first, last - first, leaves, whole);
      std::vector<float> out(static_cast<size_t>(count));
      comm.run(Communicator::reduce_scatter_nodes(
          run.parts, {}, {{root_of(leaves), {out.data(), count, f32}}}, leaves));
      expect(std::equal(out.begin(), out.end(), expected.begin() + comm.rank() * count),
             concat({"reduce_scatter of nodes, ", leaves, " leaves, way ", way}));
    }
  }
  // Leaf by leaf in rounds, each rank one leaf a round, sums pending between.
  std::vector<Part> pending;
  std::vector<std::vector<float>> memory;
  for (int64_t round = 0; round * size < leaves; ++round) {
    const int64_t leaf = round * size + comm.rank();
    const bool has = leaf < leaves;
    LeafRun run(has ? leaf : 0, has ? 1 : 0, leaves, whole);
    std::vector<Node> nodes;
    for (const Part& part : pending)
      nodes.push_back(part.node);
    for (int64_t l = round * size; l < std::min(leaves, (round + 1) * size); ++l)
      nodes.push_back({0, static_cast<int32_t>(l)});
    std::vector<Part> results;
    std::vector<std::vector<float>> next;
    for (const Node node : merged(nodes, leaves)) {
      next.emplace_back(static_cast<size_t>(count));
      results.push_back({node, {next.back().data(), count, f32}});
    }
    comm.run(Communicator::reduce_scatter_nodes(run.parts, pending, results, leaves));
    pending = results;
    memory = std::move(next);
  }
  expect(memory.size() == 1 &&
             std::equal(memory[0].begin(), memory[0].end(), expected.begin() + comm.rank() * count),
         "reduce_scatter of nodes in rounds");
}

void check_started(Communicator& comm) {
  constexpr int kCalls = 20;
  constexpr int64_t kCount = 3000;
  std::vector<Buffer> buffers;
  std::vector<Handle> handles;
  for (int k = 0; k < kCalls; ++k) {
    buffers.emplace_back(comm, kCount, f32, k % 2 == 0);
    buffers.back().fill([&](int64_t i) { return value_of(comm.rank() + k, i); });
    handles.push_back(comm.start_all_reduce(buffers.back()));
  }
  // One that is not started takes its place in the order.
  Buffer whole(comm, kCount * comm.size(), f32, true);
  Buffer piece(comm, kCount, f32, true);
  piece.fill([&](int64_t i) { return value_of(comm.rank(), i); });
  comm.all_gather(piece, whole);
  expect(handles.front().done() && handles.back().done(), "calls run in order");
  for (int k = kCalls - 1; k >= 0; --k) {
    handles[static_cast<size_t>(k)].wait();
    for (int64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (int r = 0; r < comm.size(); ++r)
        sum += value_of(r + k, i);
      expect(buffers[static_cast<size_t>(k)].get(i) == sum, "started all_reduce");
    }
  }
  Handle scatter = comm.start_reduce_scatter(whole, piece);
  Handle gather = comm.start_all_gather(piece, whole);
  comm.wait_all();
  expect(scatter.done() && gather.done(), "wait_all waits for all");
  scatter.wait();
  gather.wait();
  gather.wait();  // again is nothing
  for (int64_t i = 0; i < kCount * comm.size(); ++i)
    expect(whole.get(i) == comm.size() * value_of(static_cast<int>(i / kCount), i % kCount),
           "started reduce_scatter and all_gather");
  Handle none;
  none.wait();
  expect(none.done() && !none.valid(), "a handle of nothing is done");
}

void check_split(Communicator& comm) {
  const int rank = comm.rank();
  const int size = comm.size();
  // Evens and odds, in reverse order.
  const auto half = comm.split(rank % 2, -rank, "half");
  expect(half->size() == (size + (rank % 2 == 0 ? 1 : 0)) / 2, "size of a group");
  expect(half->rank() == half->size() - 1 - rank / 2, "order by key");
  expect(half->name() == concat({comm.name(), "/half[", rank % 2, "]"}), "name of a group");
  check_collectives(*half, f32, 1500, true);
  check_collectives(*half, bf16, 5, false);
  comm.barrier();
  // A group of the group; those of negative color get none.
  const auto first = half->split(half->rank() == 0 ? 3 : -1, 0, "first");
  expect((first != nullptr) == (half->rank() == 0), "negative colors get null");
  if (first) check_collectives(*first, f32, 3, false);
  // All groups and the world in turn.
  for (int i = 0; i < 3; ++i) {
    float one = 1;
    comm.all_reduce({&one, 1, f32});
    half->all_reduce({&one, 1, f32});
    expect(one == static_cast<float>(size * half->size()), "group after world");
  }
  expect(&half->recorder() == &comm.recorder(), "groups share the recorder");
}

uint64_t digest_of_sums(Communicator& comm) {
  uint64_t digest = 14695981039346656037u;
  for (const int64_t count : {1, 1000, 300'000}) {
    std::vector<float> values(static_cast<size_t>(count));
    fill_normal({.seed = 3}, static_cast<uint64_t>(comm.rank() * count), values.data(), count);
    comm.all_reduce({values.data(), count, f32}, ReduceOp::mean);
    for (const float value : values)
      digest = (digest ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
  }
  return digest;
}

}  // namespace weft::test
