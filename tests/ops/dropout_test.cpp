#include "ops/dropout.h"

#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;

TEST(Dropout, DropsAShareAndScalesTheRest) {
  manual_seed(1);
  const Tensor x = ones({100'000});
  const auto values = dropout(x, 0.3, true).to_vector<double>();
  int64_t dropped = 0;
  for (const double value : values) {
    if (value == 0) {
      ++dropped;
    } else {
      EXPECT_NEAR(value, 1 / 0.7, 1e-6);
    }
  }
  EXPECT_NEAR(static_cast<double>(dropped), 30'000, 5 * 145);  // five standard deviations
}

TEST(Dropout, ScalesByAFactorOfItsOwnPrecision) {
  for (const double value : dropout(ones({100}, {.dtype = f64}), 0.1, true).to_vector<double>())
    EXPECT_TRUE(value == 0 || value == 1 / 0.9) << value;
}

TEST(Dropout, IsTheIdentityOutsideTrainingAndForNothing) {
  const Tensor x = ones({4});
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(dropout(x, 0, true).is_same(x));
  EXPECT_EQ(dropout(full({2}, INFINITY), 1, true).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_THROW(dropout(x, 1.5, true), Error);
  EXPECT_THROW(dropout(x, NAN, true), Error);
  EXPECT_THROW(dropout(from_values(std::vector<int64_t>{1}), 0.5, true), Error);
}

TEST(Dropout, DependsOnKeyAndLogicalIndexAlone) {
  const Tensor x = test::normal({37, 501}, 1, f32);
  const auto drawn = [&](const Tensor& input, int threads) {
    manual_seed(9);
    set_num_threads(threads);
    const auto values = dropout(input, 0.5, true).to_vector<float>();
    set_num_threads(1);
    return values;
  };
  EXPECT_EQ(drawn(x, 1), drawn(x, 3));
  EXPECT_EQ(drawn(x, 1), drawn(strided(x), 2));
  manual_seed(9);
  const auto first = dropout(x, 0.5, true).to_vector<float>();
  EXPECT_NE(first, dropout(x, 0.5, true).to_vector<float>());
}

TEST(Dropout, BackwardDropsTheSame) {
  EXPECT_EQ(gradcheck([](const Inputs& in) { return dropout(in[0], 0.4, true); }, {leaf({5, 7})}),
            "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return dropout(in[0], 0.4, true); },
                      {strided(leaf({5, 7}))}),
            "");
}

}  // namespace
}  // namespace weft
