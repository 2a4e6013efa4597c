#include "ops/scan.h"

#include "autograd/gradcheck.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using test::ints;
using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

TEST(Cumsum, AddsAlongADim) {
  const Tensor x = ints({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(cumsum(x, 1).to_vector<int64_t>(), (Ints{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(cumsum(strided(x), 0).to_vector<int64_t>(), (Ints{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(cumsum(to(x, u8), 1).dtype(), i64);
  EXPECT_EQ(cumsum(ones({300}, {.dtype = bf16}), 0).to_vector<double>().back(), 300);
  EXPECT_EQ(cumsum(empty({0, 3}), 0).shape(), Shape({0, 3}));
  EXPECT_EQ(cumsum(full({}, 2.0), 0).item(), 2);
  EXPECT_THROW(cumsum(x, 2), Error);
}

TEST(Cumsum, Gradcheck) {
  for (const Tensor& x :
       {leaf({2, 3, 2}), strided(leaf({2, 3, 2})), test::repeated({2, 3, 2}), leaf({0, 3, 2})}) {
    for (const int64_t dim : {0, 1, 2}) {
      EXPECT_EQ(gradcheck([&](const Inputs& in) { return cumsum(in[0], dim); }, {x}), "");
    }
  }
}

}  // namespace
}  // namespace weft
