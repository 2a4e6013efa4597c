#include "ops/sort.h"

#include "autograd/gradcheck.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using test::error_of;
using test::ints;
using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

TEST(Sort, OrdersStablyWithNaNLast) {
  const Tensor x = from_values(std::vector<float>{2, NAN, 1, 2, -1}, {5});
  EXPECT_EQ(argsort(x).to_vector<int64_t>(), (Ints{4, 2, 0, 3, 1}));
  EXPECT_EQ(argsort(x, 0, true).to_vector<int64_t>(), (Ints{1, 0, 3, 2, 4}));
  const auto [values, indices] = sort(ints({3, 1, 2, 6, 5, 4}, {2, 3}), 0);
  EXPECT_EQ(values.to_vector<int64_t>(), (Ints{3, 1, 2, 6, 5, 4}));
  EXPECT_EQ(sort(strided(ints({3, 1, 2, 6, 5, 4}, {2, 3})), 1).values.to_vector<int64_t>(),
            (Ints{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(sort(empty({0, 2}), 0).values.numel(), 0);
  EXPECT_EQ(sort(empty({2, 0}), 0).values.numel(), 0);
  EXPECT_EQ(sort(full({}, 3.0)).values.item(), 3);
  EXPECT_THROW(sort(x, 1), Error);
}

TEST(Sort, Gradcheck) {
  for (const Tensor& x : {leaf({3, 4}), strided(leaf({3, 4}))}) {
    EXPECT_EQ(gradcheck([](const Inputs& in) { return sort(in[0], 0).values; }, {x}), "");
    EXPECT_EQ(gradcheck([](const Inputs& in) { return topk(in[0], 2, 1).values; }, {x}), "");
  }
}

TEST(TopK, GivesTheFirstKOfTheOrder) {
  const Tensor x = ints({3, 1, 2, 6, 5, 4}, {2, 3});
  EXPECT_EQ(topk(x, 2).values.to_vector<int64_t>(), (Ints{3, 2, 6, 5}));
  EXPECT_EQ(topk(x, 1, 0, false).indices.to_vector<int64_t>(), (Ints{0, 0, 0}));
  EXPECT_EQ(topk(x, 0).values.shape(), Shape({2, 0}));
  EXPECT_EQ(error_of([&] { topk(x, 4); }),
            "[topk] expected k in [0, 3] for dim 1 of [2, 3], got 4");
}

}  // namespace
}  // namespace weft
