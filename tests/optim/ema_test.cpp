// Moving averages of weights.
#include "optim/ema.h"

#include "ops/ops.h"
#include "tests/support/tensors.h"
#include "weft.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using optim::Ema;

TEST(Ema, FollowsItsFormula) {
  const Tensor weight = from_values(std::vector<float>{1, -2, 4}).set_requires_grad();
  Ema plain(std::vector<Tensor>{weight}, {.decay = 0.75, .warm_up = false});
  Ema warm(std::vector<Tensor>{weight}, {.decay = 0.75});
  {
    const NoGrad no_grad;
    copy_(weight, from_values(std::vector<float>{5, 2, 0}));
  }
  plain.update();
  warm.update();  // 1/10 of the old value stays
  EXPECT_EQ(plain.averages()[0].tensor.to_vector<float>(), (std::vector<float>{2, -1, 3}));
  const auto warmed = warm.averages()[0].tensor.to_vector<float>();
  EXPECT_NEAR(warmed[0], 4.6, 1e-6);
  EXPECT_NEAR(warmed[1], 1.6, 1e-6);
  warm.update();  // 2/11
  EXPECT_NEAR(warm.averages()[0].tensor.to_vector<float>()[0], 4.6 + (5 - 4.6) * 9 / 11, 1e-6);
  for (int i = 0; i < 100; ++i)
    warm.update();
  EXPECT_EQ(warm.updates(), 102);
  EXPECT_EQ(weight.to_vector<float>(), (std::vector<float>{5, 2, 0}));
}

TEST(Ema, SwapsAndSwapsBack) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    nn::Linear layer(40, 500);
    layer.to(dtype);
    Ema ema(layer, {.decay = 0.5, .warm_up = false});
    const Tensor first = clone(to(layer.weight.detach(), f64));
    {
      const NoGrad no_grad;
      copy_(layer.weight, layer.weight + 1.0);
    }
    const Tensor then = clone(layer.weight.detach());
    ema.update();
    ema.swap();
    EXPECT_TRUE(ema.swapped());
    EXPECT_THROW(ema.update(), Error);
    const Tensor expected = (first + to(then, f64)) * 0.5;
    EXPECT_LT(max(abs(to(layer.weight.detach(), f64) - expected)).item(),
              2 * test::tolerance_of(dtype))
        << to_string(dtype);
    ema.swap();
    EXPECT_EQ(max(abs(to(layer.weight.detach(), f64) - to(then, f64))).item(), 0);
    EXPECT_EQ(ema.averages()[0].tensor.dtype(), dtype == f64 ? f64 : f32);
  }
}

// Buffers that are not floating stay what they are.
TEST(Ema, AveragesStatisticsToo) {
  nn::BatchNorm2d norm(3);
  Ema ema(norm, {.decay = 0.5, .warm_up = false}, norm.named_buffers());
  fill_(norm.running_mean, 4.0);
  fill_(norm.num_batches_tracked, 7);
  ema.update();
  ema.swap();
  EXPECT_EQ(norm.running_mean.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(norm.running_var.to_vector<float>(), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(norm.num_batches_tracked.item_int(), 7);
  ema.swap();
  EXPECT_EQ(norm.running_mean.to_vector<float>(), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(ema.state_dict().size(), 5U);  // updates, two buffers, weight, bias
  EXPECT_EQ(ema.state_bytes(), 8 + 4 * 3 * 4);
}

TEST(Ema, RefusesWhatItCannotAverage) {
  nn::Linear layer(3, 2);
  EXPECT_THROW(Ema(layer, {.decay = 1.5}), Error);
  EXPECT_THROW(Ema(std::vector<Tensor>{ones({3}, {.dtype = i64})}), Error);
  Ema ema(layer);
  layer.to(f64);
  EXPECT_THROW(ema.update(), Error);
}

}  // namespace
}  // namespace weft
