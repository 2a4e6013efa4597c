#include "dist/tree.h"

#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/tensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace weft::dist {
namespace {

using test::error_of;

std::string text(const std::vector<Node>& nodes) {
  std::string text;
  for (const Node node : nodes)
    text += concat({"(", node.level, ",", node.index, ")"});
  return text;
}

TEST(Tree, RootIsTheSmallestThatCoversAll) {
  EXPECT_EQ(root_of(1), (Node{0, 0}));
  EXPECT_EQ(root_of(2), (Node{1, 0}));
  EXPECT_EQ(root_of(5), (Node{3, 0}));
  EXPECT_EQ(root_of(8), (Node{3, 0}));
  EXPECT_EQ(error_of([] { root_of(0); }), "[tree] expected 1 to 2^31 - 1 leaves, got 0");
}

TEST(Tree, NodesWithoutASiblingRise) {
  EXPECT_EQ(raised({0, 4}, 5), (Node{2, 1}));
  EXPECT_EQ(raised({0, 4}, 6), (Node{0, 4}));
  EXPECT_EQ(raised({1, 2}, 6), (Node{2, 1}));
  EXPECT_EQ(raised({0, 0}, 1), (Node{0, 0}));
}

TEST(Tree, CoveringIsTheFewestNodes) {
  EXPECT_EQ(text(covering(0, 8, 8)), "(3,0)");
  EXPECT_EQ(text(covering(1, 6, 8)), "(0,1)(1,1)(1,2)(0,6)");
  EXPECT_EQ(text(covering(4, 1, 5)), "(2,1)");
  EXPECT_EQ(text(covering(3, 2, 5)), "(0,3)(2,1)");
  EXPECT_EQ(text(covering(0, 5, 5)), "(3,0)");
  EXPECT_EQ(text(covering(2, 0, 5)), "");
  EXPECT_EQ(error_of([] { covering(3, 3, 5); }),
            "[tree] expected a run of leaves out of 5, got 3 from 3");
}

TEST(Tree, CoveringHoldsEveryLeafOnceAndMergesToItself) {
  for (int64_t leaves = 1; leaves <= 17; ++leaves) {
    for (int64_t first = 0; first < leaves; ++first) {
      for (int64_t count = 0; first + count <= leaves; ++count) {
        const auto nodes = covering(first, count, leaves);
        int64_t at = first;
        for (const Node node : nodes) {
          EXPECT_EQ(first_leaf(node), at);
          at = std::min(leaves, at + (int64_t{1} << node.level));
        }
        EXPECT_EQ(at, first + count);
        EXPECT_EQ(text(merged(nodes, leaves)), text(nodes));
        // The leaves one by one add up to the same nodes.
        std::vector<Node> singles;
        for (int64_t leaf = first; leaf < first + count; ++leaf)
          singles.push_back({0, static_cast<int32_t>(leaf)});
        EXPECT_EQ(text(merged(singles, leaves)), text(nodes));
      }
    }
  }
}

// The definition: node = left half + right half, a half without leaves is left out.
std::optional<float> naive(const std::vector<float>& leaf, int64_t level, int64_t index) {
  const auto leaves = static_cast<int64_t>(leaf.size());
  if (index << level >= leaves) return {};
  if (level == 0) return leaf[static_cast<size_t>(index)];
  const auto left = naive(leaf, level - 1, 2 * index);
  const auto right = naive(leaf, level - 1, 2 * index + 1);
  return right ? *left + *right : *left;
}

struct Leaves {
  int64_t leaves, count;
  std::vector<std::vector<float>> values;

  Leaves(int64_t n, int64_t elements, uint64_t seed = 1) : leaves(n), count(elements) {
    for (int64_t i = 0; i < n; ++i) {
      values.emplace_back(static_cast<size_t>(elements));
      fill_normal({.seed = seed}, static_cast<uint64_t>(i * elements), values.back().data(),
                  elements);
    }
  }
  float sum(Node node, size_t element) const {
    std::vector<float> column;
    for (const auto& leaf : values)
      column.push_back(leaf[element]);
    return naive(column, node.level, node.index).value();
  }
};

Part part(Node node, std::vector<float>& values) {
  return {node, {values.data(), static_cast<int64_t>(values.size()), f32}};
}

TEST(Fold, EqualsTheDefinitionBitForBit) {
  for (const int64_t count : {0, 1, 511, 512, 1500}) {
    for (int64_t leaves = 1; leaves <= 9; ++leaves) {
      Leaves data(leaves, count);
      std::vector<Part> inputs;
      for (int64_t i = leaves - 1; i >= 0; --i)  // in any order
        inputs.push_back(part({0, static_cast<int32_t>(i)}, data.values[static_cast<size_t>(i)]));
      std::vector<float> out(static_cast<size_t>(count));
      fold(inputs, std::vector{part(root_of(leaves), out)}, leaves);
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], data.sum(root_of(leaves), i)) << leaves << " leaves, element " << i;
    }
  }
}

TEST(Fold, AnyGroupingGivesTheSameBits) {
  constexpr int64_t leaves = 13;
  Leaves data(leaves, 700);
  std::vector<float> whole(700);
  for (int64_t i = 0; i < 700; ++i)
    whole[static_cast<size_t>(i)] = data.sum(root_of(leaves), static_cast<size_t>(i));
  for (int64_t cut1 = 0; cut1 <= leaves; ++cut1) {
    for (int64_t cut2 = cut1; cut2 <= leaves; ++cut2) {
      // Three ranks fold their own runs; the nodes that come out are folded again.
      std::vector<std::vector<float>> held;
      std::vector<Node> nodes;
      for (const auto& [first, last] :
           {std::pair{int64_t{0}, cut1}, {cut1, cut2}, {cut2, leaves}}) {
        std::vector<Part> inputs;
        for (int64_t i = first; i < last; ++i)
          inputs.push_back(part({0, static_cast<int32_t>(i)}, data.values[static_cast<size_t>(i)]));
        const auto own = covering(first, last - first, leaves);
        const size_t begin = held.size();
        held.resize(begin + own.size(), std::vector<float>(700));
        std::vector<Part> results;
        for (size_t i = 0; i < own.size(); ++i) {
          results.push_back(part(own[i], held[begin + i]));
          nodes.push_back(own[i]);
        }
        fold(inputs, results, leaves);
      }
      std::vector<Part> inputs;
      for (size_t i = 0; i < nodes.size(); ++i)
        inputs.push_back(part(nodes[i], held[i]));
      std::vector<float> out(700);
      fold(inputs, std::vector{part(root_of(leaves), out)}, leaves);
      ASSERT_EQ(out, whole) << cut1 << " " << cut2;
    }
  }
}

TEST(Fold, ThreadsAndPlaceDoNotChangeBits) {
  constexpr int64_t count = 100'003;
  Leaves data(5, count);
  const auto sum = [&](int64_t begin, int64_t end) {
    std::vector<Part> inputs;
    for (int i = 0; i < 5; ++i) {
      inputs.push_back({{0, i},
                        Elements{data.values[static_cast<size_t>(i)].data(), count, f32}.part(
                            begin, end - begin)});
    }
    std::vector<float> out(static_cast<size_t>(end - begin));
    fold(inputs, std::vector{part(root_of(5), out)}, 5);
    return out;
  };
  const int threads = num_threads();
  set_num_threads(1);
  const auto one = sum(0, count);
  set_num_threads(3);
  EXPECT_EQ(sum(0, count), one);
  const auto some = sum(77, 4321);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), one.begin() + 77));
  set_num_threads(threads);
}

TEST(Fold, AResultMayLieOnAnyInput) {
  for (size_t on = 0; on < 5; ++on) {
    Leaves data(5, 1000);
    const Leaves original = data;
    std::vector<Part> inputs;
    for (int i = 0; i < 5; ++i)
      inputs.push_back(part({0, i}, data.values[static_cast<size_t>(i)]));
    fold(inputs, std::vector{part(root_of(5), data.values[on])}, 5);
    for (size_t i = 0; i < 1000; ++i)
      ASSERT_EQ(data.values[on][i], original.sum(root_of(5), i));
  }
  // Two results, each on an input of the other.
  Leaves data(8, 1000);
  const Leaves original = data;
  std::vector<Part> inputs;
  for (const int i : {0, 1, 4})
    inputs.push_back(part({0, i}, data.values[static_cast<size_t>(i)]));
  fold(inputs, std::vector{part({0, 4}, data.values[0]), part({1, 0}, data.values[4])}, 8);
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(data.values[0][i], original.values[4][i]);
    ASSERT_EQ(data.values[4][i], original.sum({1, 0}, i));
  }
}

template <class T>
std::vector<double> reduced(std::vector<std::vector<T>> values, ReduceOp op, int64_t mean_of = 0) {
  std::vector<Part> inputs;
  for (size_t i = 0; i < values.size(); ++i) {
    inputs.push_back({{0, static_cast<int32_t>(i)},
                      {values[i].data(), static_cast<int64_t>(values[i].size()), dtype_of<T>}});
  }
  std::vector<T> out(values[0].size());
  const auto leaves = static_cast<int64_t>(values.size());
  fold(inputs,
       std::vector<Part>{
           {root_of(leaves), {out.data(), static_cast<int64_t>(out.size()), dtype_of<T>}}},
       leaves, op, mean_of);
  std::vector<double> result;
  for (const T value : out) {
    if constexpr (sizeof(T) == 2) {
      result.push_back(static_cast<double>(static_cast<float>(value)));
    } else {
      result.push_back(static_cast<double>(value));
    }
  }
  return result;
}

template <class T>
std::vector<std::vector<T>> small_integers(size_t leaves, size_t count) {
  std::vector<std::vector<T>> values(leaves, std::vector<T>(count));
  for (size_t i = 0; i < leaves; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const auto value = static_cast<float>(1 + (i * 7 + j * 3) % 4);
      if constexpr (sizeof(T) == 2) {
        values[i][j] = T(value);
      } else {
        values[i][j] = static_cast<T>(value);
      }
    }
  }
  return values;
}

template <class T>
class FoldDtypes : public testing::Test {};
using DTypes = testing::Types<float, double, BFloat16, Float16, int64_t, int32_t, uint8_t>;
TYPED_TEST_SUITE(FoldDtypes, DTypes);

TYPED_TEST(FoldDtypes, EveryReduction) {
  const auto values = small_integers<TypeParam>(3, 77);
  for (size_t j = 0; j < 77; ++j) {
    std::vector<double> x;
    for (const auto& leaf : small_integers<float>(3, 77))
      x.push_back(static_cast<double>(leaf[j]));
    EXPECT_EQ(reduced(values, ReduceOp::sum)[j], x[0] + x[1] + x[2]);
    EXPECT_EQ(reduced(values, ReduceOp::product)[j], x[0] * x[1] * x[2]);
    EXPECT_EQ(reduced(values, ReduceOp::max)[j], std::max({x[0], x[1], x[2]}));
    EXPECT_EQ(reduced(values, ReduceOp::min)[j], std::min({x[0], x[1], x[2]}));
    if (is_floating(dtype_of<TypeParam>)) {
      const double mean = reduced(values, ReduceOp::sum, 4)[j];
      EXPECT_EQ(mean, (x[0] + x[1] + x[2]) / 4);
    }
  }
}

TEST(Fold, SixteenBitsAreSummedInF32AndRoundedOnce) {
  // 1 + 2^-8 + 2^-8 in bf16 steps stays 1; in f32 it is 1 + 2^-7, which bf16 holds.
  const std::vector<std::vector<BFloat16>> values = {
      {BFloat16(1.0f)}, {BFloat16(0x1p-8f)}, {BFloat16(0x1p-8f)}};
  EXPECT_EQ(reduced(values, ReduceOp::sum)[0], 1 + 0x1p-7);
}

TEST(Fold, MixedFloatingDtypes) {
  std::vector<BFloat16> a = {BFloat16(1.5f), BFloat16(2.0f)};
  std::vector<float> b = {0x1p-20f, 3.0f};
  std::vector<float> out(2);
  fold(std::vector<Part>{{{0, 0}, {a.data(), 2, bf16}}, {{0, 1}, {b.data(), 2, f32}}},
       std::vector{part({1, 0}, out)}, 2);
  EXPECT_EQ(out, (std::vector<float>{1.5f + 0x1p-20f, 5.0f}));
}

TEST(Fold, MaxAndMinKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> values = {{nan, 1.0f}, {1.0f, nan}};
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    for (const double value : reduced(values, op))
      EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Fold, RefusesWhatDoesNotAddUp) {
  std::vector<float> a(4), b(4), out(4), shorter(3);
  const std::vector<Part> inputs = {part({0, 0}, a), part({0, 1}, b)};
  EXPECT_EQ(error_of([&] {
              fold(inputs, std::vector{part({0, 0}, out)}, 4);
            }),
            "[fold] expected results for nodes (1, 0), got (0, 0)");
  EXPECT_EQ(error_of([&] { fold(inputs, {}, 4); }),
            "[fold] expected 0 elements in every node, got 4");
  EXPECT_EQ(error_of([&] {
              fold(inputs, std::vector{part({1, 0}, shorter)}, 4);
            }),
            "[fold] expected 3 elements in every node, got 4");
  EXPECT_EQ(
      error_of([&] {
        fold(std::vector{part({1, 0}, a), part({0, 1}, b)}, std::vector{part({1, 0}, out)}, 4);
      }),
      "[fold] expected disjoint nodes of a tree over 4 leaves, got node (0, 1) behind leaf 2");
  std::vector<int64_t> whole(4);
  const std::vector<Part> mixed = {part({0, 0}, a), {{0, 1}, {whole.data(), 4, i64}}};
  EXPECT_EQ(error_of([&] {
              fold(mixed, std::vector{part({1, 0}, out)}, 2);
            }),
            "[fold] expected one dtype or floating ones, got f32 and i64");
  const std::vector<Part> integers = {{{0, 0}, {whole.data(), 4, i64}}};
  EXPECT_EQ(error_of([&] { fold(integers, integers, 1, ReduceOp::sum, 2); }),
            "[fold] expected a floating dtype for a mean, got i64");
}

}  // namespace
}  // namespace weft::dist
