#include "ops/index.h"

#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/reduce.h"
#include "ops/sort.h"
#include "ops/view.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::error_of;
using test::ints;
using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

TEST(Gather, ReadsByIndexAlongADim) {
  const Tensor x = ints({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(gather(x, 1, ints({2, 0, 1, 1}, {2, 2})).to_vector<int64_t>(), (Ints{2, 0, 4, 4}));
  EXPECT_EQ(gather(strided(x), 0, ints({1, 0, 1}, {1, 3})).to_vector<int64_t>(), (Ints{3, 1, 5}));
  EXPECT_EQ(gather(x, 1, empty({2, 0}, {.dtype = i64})).numel(), 0);
  EXPECT_EQ(gather(to(x, bf16), 1, ints({2}, {1, 1})).item(), 2);
}

TEST(Gather, NamesTheFirstBadIndex) {
  const Tensor x = empty({2, 3});
  EXPECT_EQ(error_of([&] {
              gather(x, 1, ints({0, 3}, {1, 2}));
            }),
            "[gather] expected indices in [0, 3), got 3 at position 1 of shape [1, 2]");
  EXPECT_THROW(gather(x, 1, ints({-1}, {1, 1})), Error);
  EXPECT_THROW(gather(x, 1, ints({0, 0, 0}, {3, 1})), Error);
  EXPECT_THROW(gather(x, 1, ints({0}, {1})), Error);
  EXPECT_THROW(gather(x, 1, empty({1, 1})), Error);
  EXPECT_THROW(gather(empty({}), 0, ints({0}, {1})), Error);
}

TEST(Gather, Gradcheck) {
  const Tensor index = ints({0, 2, 2, 1, 1, 1}, {3, 2});
  for (const Tensor& x : {leaf({3, 4}), strided(leaf({3, 4})), test::repeated({3, 4})}) {
    EXPECT_EQ(gradcheck([&](const Inputs& in) { return gather(in[0], 1, index); }, {x}), "");
    EXPECT_EQ(gradcheck([&](const Inputs& in) { return gather(in[0], 0, index); }, {x}), "");
  }
}

TEST(IndexSelect, PicksSlices) {
  const Tensor x = ints({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(index_select(x, 1, ints({2, 2, 0}, {3})).to_vector<int64_t>(),
            (Ints{2, 2, 0, 5, 5, 3}));
  EXPECT_EQ(index_select(strided(x), 0, ints({1}, {1})).to_vector<int64_t>(), (Ints{3, 4, 5}));
  EXPECT_EQ(index_select(x, 0, to(ints({1}, {1}), i32)).to_vector<int64_t>(), (Ints{3, 4, 5}));
  EXPECT_EQ(index_select(x, 0, empty({0}, {.dtype = i64})).shape(), Shape({0, 3}));
  EXPECT_THROW(index_select(x, 0, ints({2}, {1})), Error);
  EXPECT_THROW(index_select(x, 0, ints({0}, {1, 1})), Error);
}

TEST(IndexSelect, Gradcheck) {
  const Tensor index = ints({1, 0, 1, 1}, {4});
  for (const Tensor& x : {leaf({2, 3, 2}), strided(leaf({2, 3, 2})), test::repeated({2, 3, 2})}) {
    for (const int64_t dim : {0, 1, -1}) {
      EXPECT_EQ(gradcheck([&](const Inputs& in) { return index_select(in[0], dim, index); }, {x}),
                "");
    }
  }
}

TEST(ScatterAdd, AddsRepeatedPlacesInOrder) {
  const Tensor x = zeros({4});
  const Tensor out =
      scatter_add(x, 0, ints({1, 1, 3}, {3}), from_values(std::vector<float>{1, 2, 4}));
  EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{0, 3, 0, 4}));
  // 16-bit sums do not get stuck: 1000 ones.
  const Tensor ones16 = ones({1000}, {.dtype = bf16});
  EXPECT_EQ(
      scatter_add(zeros({1}, {.dtype = bf16}), 0, zeros({1000}, {.dtype = i64}), ones16).item(),
      1000);
  EXPECT_THROW(scatter_add(x, 0, ints({0}, {1}), zeros({2})), Error);
  EXPECT_THROW(scatter_add(x, 0, ints({0}, {1}), zeros({1}, {.dtype = f64})), Error);
}

TEST(ScatterAdd, Gradcheck) {
  const Tensor index = ints({0, 0, 2, 1, 1, 1}, {2, 3});
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return scatter_add(in[0], 1, index, in[1]); },
                      {leaf({2, 4}, 1), strided(leaf({2, 3}, 2))}),
            "");
}

TEST(Embedding, PicksRowsForIdsOfAnyShape) {
  const Tensor weight = ints({0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor out = embedding(weight, ints({2, 0, 1, 2}, {2, 2}));
  EXPECT_EQ(out.shape(), Shape({2, 2, 2}));
  EXPECT_EQ(out.to_vector<int64_t>(), (Ints{4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(embedding(weight, ints({1}, {})).shape(), Shape({2}));
  EXPECT_EQ(error_of([&] {
              embedding(weight, ints({0, 3}, {2}));
            }),
            "[embedding] expected indices in [0, 3), got 3 at position 1 of shape [2]");
  EXPECT_THROW(embedding(empty({3}), ints({0}, {1})), Error);
}

TEST(Embedding, GradientIsTheSameOnAnyNumberOfThreads) {
  const Tensor weight = test::normal({16, 257}, 1, f32);
  weight.set_requires_grad();
  const Tensor ids = randint(0, 16, {4096});
  const auto gradient = [&](int threads) {
    set_num_threads(threads);
    weight.set_grad({});
    backward(embedding(weight, ids), test::normal({4096, 257}, 2, f32));
    set_num_threads(1);
    return weight.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(1), gradient(3));
}

TEST(Embedding, Gradcheck) {
  const Tensor ids = ints({1, 1, 0, 2}, {2, 2});
  EXPECT_EQ(gradcheck([&](const Inputs& in) { return embedding(in[0], ids); }, {leaf({3, 2})}), "");
  EXPECT_EQ(
      gradcheck([&](const Inputs& in) { return embedding(in[0], ids); }, {strided(leaf({3, 2}))}),
      "");
}

// An index that is kept for backward is watched as values are.
TEST(Indices, ChangedOnesAreNoticed) {
  const Tensor x = test::leaf({4, 3});
  const auto refused = [&](const auto& result, const Tensor& index) {
    const Tensor loss = sum(result(index));
    fill_(index, 1 << 20);
    EXPECT_NE(test::error_of([&] { loss.backward(); }).find("changed in place"), std::string::npos);
  };
  refused([&](const Tensor& i) { return embedding(x, i); }, zeros({2}, {.dtype = i64}));
  refused([&](const Tensor& i) { return index_select(x, 0, i); }, zeros({2}, {.dtype = i64}));
  refused([&](const Tensor& i) { return gather(x, 0, i); }, zeros({2, 3}, {.dtype = i64}));
  refused(
      [&](const Tensor& i) {
        return scatter_add(zeros({4, 3}, {.dtype = f64}), 0, i, narrow(x, 0, 0, 2));
      },
      zeros({2, 3}, {.dtype = i64}));
  const auto refused_pair = [&](const ValuesIndices& pair) {
    refused([&](const Tensor&) { return pair.values; }, pair.indices);
  };
  refused_pair(topk(x, 2));
  refused_pair(sort(x, 0));
  refused_pair(max(x, 0));
}

TEST(OneHot, MarksTheClass) {
  EXPECT_EQ(one_hot(ints({1, 0}, {2}), 3).to_vector<int64_t>(), (Ints{0, 1, 0, 1, 0, 0}));
  EXPECT_THROW(one_hot(ints({3}, {1}), 3), Error);
  EXPECT_THROW(one_hot(ints({0}, {1}), 0), Error);
}

}  // namespace
}  // namespace weft
