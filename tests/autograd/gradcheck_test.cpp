#include "autograd/gradcheck.h"

#include "autograd/record.h"
#include "core/random.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using test::leaf;
using Inputs = std::vector<Tensor>;

// x², with a gradient of factor · x where 2 is right.
Tensor square_with(const Tensor& x, double factor) {
  const Tensor out = x.detach() * x.detach();
  record("square_with", out, inputs(x), [factor, saved = Saved(x)](const Tensor& g, Gradients& to) {
    to.set(0, g * saved.get("square_with") * factor);
  });
  return out;
}

TEST(Gradcheck, PassesARightGradient) {
  EXPECT_EQ(gradcheck([](const Inputs& in) { return square_with(in[0], 2); }, {leaf({2, 3})}), "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return exp(in[0]) * in[1]; },
                      {leaf({2, 3}, 1), leaf({3}, 2)}),
            "");
}

TEST(Gradcheck, NamesInputElementAndBothValuesOfAWrongOne) {
  const std::string message =
      gradcheck([](const Inputs& in) { return in[0] + square_with(in[1], 2.001); },
                {leaf({2, 3}, 1), leaf({2, 3}, 2)});
  EXPECT_EQ(message.find("input 1 of shape [2, 3], element 0: backward gives "), 0u) << message;
  EXPECT_NE(message.find("central differences give "), std::string::npos) << message;
}

TEST(Gradcheck, CatchesASingleWrongElement) {
  const auto f = [](const Inputs& in) {
    const Tensor out = in[0].detach() * 3.0;
    record("one_wrong", out, inputs(in[0]), [](const Tensor& g, Gradients& to) {
      const Tensor d = g * 3.0;
      d.data<double>()[4] *= 1.0001;
      to.set(0, d);
    });
    return out;
  };
  EXPECT_NE(gradcheck(f, {leaf({2, 3})}).find("element 4"), std::string::npos);
}

TEST(Gradcheck, CatchesAMissingGradientAndAWrongShape) {
  const auto silent = [](const Inputs& in) {
    const Tensor out = in[0].detach() * 2.0;
    record("silent", out, inputs(in[0]), [](const Tensor&, Gradients&) {});
    return out;
  };
  EXPECT_NE(gradcheck(silent, {leaf({2})}), "");
  const auto misshapen = [](const Inputs& in) {
    const Tensor out = in[0].detach() * 2.0;
    record("misshapen", out, inputs(in[0]), [](const Tensor& g, Gradients& to) {
      to.set(0, reshape(g * 2.0, {4, 1}));
    });
    return out;
  };
  EXPECT_NE(gradcheck(misshapen, {leaf({2, 2})}).find("expected a gradient of shape [2, 2]"),
            std::string::npos);
  const auto cut = [](const Inputs& in) { return in[0].detach() * 2.0; };
  EXPECT_NE(gradcheck(cut, {leaf({2})}), "");
}

TEST(Gradcheck, CatchesNan) {
  const auto f = [](const Inputs& in) { return square_with(in[0], NAN); };
  EXPECT_NE(gradcheck(f, {leaf({2})}), "");
}

TEST(Gradcheck, CatchesAResultThatDependsOnTheLayout) {
  const auto f = [](const Inputs& in) { return in[0] * (in[0].is_contiguous() ? 1.0 : 2.0); };
  EXPECT_EQ(gradcheck(f, {leaf({3, 2})}), "");
  EXPECT_EQ(gradcheck(f, {test::strided(leaf({3, 2}))}).find("result element 0"), 0u);
}

TEST(Gradcheck, TakesStridedBroadcastAndEmptyInputs) {
  const auto f = [](const Inputs& in) { return in[0] * in[1]; };
  EXPECT_EQ(gradcheck(f, {test::strided(leaf({3, 2}, 1)), leaf({3, 2}, 2)}), "");
  EXPECT_EQ(gradcheck(f, {test::repeated({3, 2}), leaf({3, 2}, 2)}), "");
  EXPECT_EQ(gradcheck(f, {leaf({0, 2}, 1), leaf({0, 2}, 2)}), "");
  EXPECT_EQ(gradcheck(f, {leaf({}, 1), leaf({}, 2)}), "");
}

TEST(Gradcheck, ChecksOnlyInputsThatNeedAGradient) {
  const Tensor indices = from_values(std::vector<int64_t>{1, 0});
  const auto f = [](const Inputs& in) { return index_select(in[0], 0, in[1]) * in[2]; };
  EXPECT_EQ(gradcheck(f, {leaf({2, 2}, 1), indices, test::normal({2, 2}, 2)}), "");
}

TEST(Gradcheck, RepeatsRandomDrawsAndLeavesTheStateAlone) {
  manual_seed(3);
  const RandomState before = random_state();
  EXPECT_EQ(gradcheck([](const Inputs& in) { return dropout(in[0], 0.5, true); }, {leaf({4, 4})}),
            "");
  EXPECT_EQ(random_state().next_stream, before.next_stream);
}

TEST(Gradcheck, LeavesTheInputsAlone) {
  const Tensor x = leaf({2});
  const std::vector<double> values = x.to_vector<double>();
  gradcheck([](const Inputs& in) { return in[0] * in[0]; }, {x});
  EXPECT_EQ(x.to_vector<double>(), values);
  EXPECT_FALSE(x.grad().defined());
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  const auto f = [](const Inputs& in) { return in[0] * 2.0; };
  EXPECT_THROW(gradcheck(f, {test::normal({2})}), Error);
  const Tensor single = full({2}, 1.0, {.dtype = f32});
  single.set_requires_grad();
  EXPECT_THROW(gradcheck(f, {single}), Error);
  EXPECT_THROW(gradcheck([](const Inputs& in) { return to(in[0], f32); }, {leaf({2})}), Error);
}

}  // namespace
}  // namespace weft
