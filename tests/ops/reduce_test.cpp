// Reductions against naive loops in double, over every kind of layout, dtype and choice of dims.
#include "ops/reduce.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

namespace weft {
namespace {

using test::error_of;
using test::expect_near;
using test::kInf;
using test::kNan;
using test::leaf;
using test::normal;
using test::repeated;
using test::strided;
using Inputs = std::vector<Tensor>;
using Doubles = std::vector<double>;

// One operator: how Weft spells it, and the same over a plain list.
struct ReduceRow {
  const char* name;
  std::function<Tensor(const Tensor&, const Shape&, bool)> op;
  std::function<double(const Doubles&)> reference;
};

double total(const Doubles& v) {
  return std::accumulate(v.begin(), v.end(), 0.0);
}
double average(const Doubles& v) {
  return total(v) / static_cast<double>(v.size());
}
double variance(const Doubles& v, double correction) {
  double sum = 0;
  for (const double x : v)
    sum += (x - average(v)) * (x - average(v));
  return sum / (static_cast<double>(v.size()) - correction);
}
double p_norm(const Doubles& v, double p) {
  double sum = 0;
  for (const double x : v)
    sum += std::pow(std::abs(x), p);
  return std::pow(sum, 1 / p);
}

const std::vector<ReduceRow>& reduce_rows() {
  static const std::vector<ReduceRow> list = {
      {"sum", [](const Tensor& x, const Shape& d, bool k) { return sum(x, d, k); }, total},
      {"mean", [](const Tensor& x, const Shape& d, bool k) { return mean(x, d, k); }, average},
      {"prod", [](const Tensor& x, const Shape& d, bool k) { return prod(x, d, k); },
       [](const Doubles& v) {
         return std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>());
       }},
      {"var", [](const Tensor& x, const Shape& d, bool k) { return var(x, d, 1, k); },
       [](const Doubles& v) { return variance(v, 1); }},
      {"var0", [](const Tensor& x, const Shape& d, bool k) { return var(x, d, 0, k); },
       [](const Doubles& v) { return variance(v, 0); }},
      {"stddev", [](const Tensor& x, const Shape& d, bool k) { return stddev(x, d, 1, k); },
       [](const Doubles& v) { return std::sqrt(variance(v, 1)); }},
      {"norm0", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 0, d, k); },
       [](const Doubles& v) {
         return static_cast<double>(v.size() - std::count(v.begin(), v.end(), 0.0));
       }},
      {"norm1", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 1, d, k); },
       [](const Doubles& v) { return p_norm(v, 1); }},
      {"norm2", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 2, d, k); },
       [](const Doubles& v) { return p_norm(v, 2); }},
      {"norm3", [](const Tensor& x, const Shape& d, bool k) { return norm(x, 3, d, k); },
       [](const Doubles& v) { return p_norm(v, 3); }},
      {"norm_inf", [](const Tensor& x, const Shape& d, bool k) { return norm(x, kInf, d, k); },
       [](const Doubles& v) {
         double most = 0;
         for (const double x : v)
           most = std::max(most, std::abs(x));
         return most;
       }},
      {"logsumexp", [](const Tensor& x, const Shape& d, bool k) { return logsumexp(x, d, k); },
       [](const Doubles& v) {
         double sum = 0;
         for (const double x : v)
           sum += std::exp(x);
         return std::log(sum);
       }},
      {"amax", [](const Tensor& x, const Shape& d, bool k) { return amax(x, d, k); },
       [](const Doubles& v) { return *std::max_element(v.begin(), v.end()); }},
      {"amin", [](const Tensor& x, const Shape& d, bool k) { return amin(x, d, k); },
       [](const Doubles& v) { return *std::min_element(v.begin(), v.end()); }},
  };
  return list;
}

// `reference` applied to the group of each output, dims kept.
Tensor naive(const Tensor& x, const Shape& dims, const ReduceRow& row) {
  Shape shape = x.shape();
  for (const int64_t d : dims)
    shape[wrap_dim(d, x.dims(), "naive")] = 1;
  if (dims.empty()) shape = Shape::filled(x.dims(), 1);
  std::vector<Doubles> groups(static_cast<size_t>(shape.numel()));
  const Strides to = contiguous_strides(shape);
  Shape at = Shape::filled(x.dims(), 0);
  for (const double value : x.to_vector<double>()) {
    int64_t group = 0;
    for (int d = 0; d < x.dims(); ++d)
      group += shape[d] == 1 ? 0 : at[d] * to[d];
    groups[static_cast<size_t>(group)].push_back(value);
    for (int d = x.dims() - 1; d >= 0 && ++at[d] == x.shape()[d]; --d)
      at[d] = 0;
  }
  Doubles out;
  for (const Doubles& group : groups)
    out.push_back(row.reference(group));
  return from_values(out, shape);
}

std::vector<uint8_t> bytes_of(const Tensor& x) {
  const Tensor flat = contiguous(x);
  std::vector<uint8_t> bytes(static_cast<size_t>(flat.bytes()));
  std::memcpy(bytes.data(), flat.raw(), bytes.size());
  return bytes;
}

TEST(Reduce, AgreesWithNaiveLoops) {
  const std::vector<Shape> choices = {{}, {0}, {1}, {-1}, {0, 2}, {1, 2}, {0, 1}};
  for (const ReduceRow& row : reduce_rows()) {
    for (const Shape& dims : choices) {
      const Tensor x = normal({3, 5, 9});
      const Tensor expected = naive(x, dims, row);
      const std::string what = row.name + to_string(dims);
      expect_near(row.op(x, dims, true), expected, 1e-12, what);
      expect_near(row.op(strided(x), dims, true), expected, 1e-12, what + " strided");
      const Tensor single = to(x, f32);
      expect_near(row.op(single, dims, true), naive(single, dims, row), 2e-5, what + " f32");
      const Tensor half = to(single, bf16);
      expect_near(row.op(half, dims, true), naive(half, dims, row), 1e-2, what + " bf16");
      const Tensor f = to(single, f16);
      expect_near(row.op(f, dims, true), naive(f, dims, row), 2e-3, what + " f16");
      EXPECT_EQ(row.op(half, dims, true).dtype(), bf16) << what;
      EXPECT_EQ(row.op(x, dims, false).numel(), expected.numel()) << what;
      EXPECT_EQ(row.op(x, dims, false).dims(), dims.empty() ? 0 : 3 - dims.dims()) << what;
      EXPECT_EQ(row.op(x, dims, false).to_vector<double>(),
                row.op(x, dims, true).to_vector<double>())
          << what;
    }
  }
}

TEST(Reduce, LongAndWide) {  // past a block, a piece and a strip, none of them whole
  const std::vector<std::pair<Shape, Shape>> cases = {{{9001}, {0}},      {{3, 5003}, {1}},
                                                      {{4500, 13}, {0}},  {{131, 150}, {0}},
                                                      {{2, 300, 9}, {1}}, {{2, 130, 70}, {0, 1}}};
  for (const ReduceRow& row : reduce_rows()) {
    for (const auto& [shape, dims] : cases) {
      const Tensor x = normal(shape);
      expect_near(row.op(x, dims, true), naive(x, dims, row), 1e-10, row.name + to_string(shape));
      expect_near(row.op(strided(x), dims, true), naive(x, dims, row), 1e-10,
                  row.name + to_string(shape));
    }
  }
}

TEST(Reduce, BitsDependOnNeitherStridesNorThreadsNorAddress) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{20011}, {0}},
                                                      {{3, 5003}, {1}},
                                                      {{9000, 21}, {0}},
                                                      {{6, 257, 33}, {0, 2}},
                                                      {{6, 257, 33}, {1}}};
  const int threads = num_threads();
  for (const ReduceRow& row : reduce_rows()) {
    for (const auto& [shape, dims] : cases) {
      const Tensor x = to(normal(shape), f32);
      const std::string what = row.name + to_string(shape) + to_string(dims);
      const auto expected = bytes_of(row.op(x, dims, false));
      EXPECT_EQ(bytes_of(row.op(strided(x), dims, false)), expected) << what << " strided";
      const Tensor shifted = alias(empty({x.numel() + 1}), x.shape(), x.strides(), 1);
      copy_(shifted, x);
      EXPECT_EQ(bytes_of(row.op(shifted, dims, false)), expected) << what << " shifted";
      for (const int count : {1, 2, 3}) {
        set_num_threads(count);
        EXPECT_EQ(bytes_of(row.op(x, dims, false)), expected) << what << " threads " << count;
      }
      set_num_threads(threads);
    }
  }
}

TEST(Reduce, ChannelsLastSumsToChannelsAsRowMajorDoes) {
  const Tensor x = to(normal({3, 20, 7, 9}), f32);
  const Tensor nhwc = channels_last(x);
  EXPECT_EQ(bytes_of(sum(nhwc, {0, 2, 3})), bytes_of(sum(x, {0, 2, 3})));
  EXPECT_TRUE(sum(nhwc, {2}, true).is_channels_last());
  EXPECT_NEAR(sum(nhwc).item(), sum(to(x, f64)).item(), 1e-4);
}

TEST(Reduce, SumsOfManyStayAccurate) {
  const Tensor tenths = full({1 << 22}, 0.1);
  const double exact = static_cast<double>(0.1f) * (1 << 22);
  EXPECT_NEAR(sum(tenths).item(), exact, exact * 2e-7);
  EXPECT_NEAR(sum(alias(tenths, {1 << 18, 16}, {16, 1}), {0}).to_vector<double>()[3], exact / 16,
              exact / 16 * 2e-7);
  EXPECT_EQ(sum(ones({70000}, {.dtype = bf16})).item(), static_cast<float>(BFloat16(70000.0f)));
}

TEST(Reduce, MeanOfHalvesDoesNotOverflow) {
  EXPECT_EQ(mean(full({100}, 60000.0, {.dtype = f16})).item(),
            60000);  // their sum is far past 65504
}

TEST(Reduce, Integers) {
  const Tensor x = from_values(std::vector<int32_t>{2000000000, 2000000000, 3, -4}, {2, 2});
  EXPECT_EQ(sum(x).dtype(), i64);
  EXPECT_EQ(sum(x).item_int(), 3999999999);
  EXPECT_EQ(prod(x, {1}).to_vector<int64_t>(), (std::vector<int64_t>{4000000000000000000, -12}));
  EXPECT_EQ(amax(x).dtype(), i32);
  EXPECT_EQ(amin(x, {0}).to_vector<int64_t>(), (std::vector<int64_t>{3, -4}));
  const Tensor flags = from_values(std::vector<uint8_t>{1, 0, 1});
  EXPECT_EQ(sum(to(flags, boolean)).item_int(), 2);
  EXPECT_EQ(max(flags, 0).indices.item_int(), 0);
  EXPECT_EQ(error_of([&] { mean(x); }), "[mean] expected a floating dtype, got i32");
  EXPECT_THROW(var(x), Error);
  EXPECT_THROW(norm(x), Error);
  EXPECT_THROW(logsumexp(x), Error);
}

TEST(Reduce, NothingAndScalars) {
  const Tensor none = empty({0, 3});
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(prod(none).item(), 1);
  EXPECT_EQ(norm(none).item(), 0);
  EXPECT_EQ(norm(none, kInf).item(), 0);
  EXPECT_TRUE(std::isnan(mean(none).item()));
  EXPECT_EQ(logsumexp(none).item(), -kInf);
  EXPECT_EQ(sum(none, {0}).to_vector<double>(), (Doubles{0, 0, 0}));
  EXPECT_EQ(sum(none, {1}).shape(), Shape({0}));
  EXPECT_EQ(amax(none, {1}).shape(), Shape({0}));
  EXPECT_EQ(error_of([&] { amax(none, {0}); }),
            "[amax] expected at least one value to choose from, got shape [0, 3]");
  EXPECT_THROW(max(none), Error);
  EXPECT_THROW(argmin(none, 0), Error);
  const Tensor one = full({}, 3.0);
  EXPECT_EQ(sum(one).item(), 3);
  EXPECT_EQ(sum(one, {0}).shape(), Shape({}));
  EXPECT_EQ(max(one, 0).values.item(), 3);
  EXPECT_EQ(argmax(one).item_int(), 0);
  EXPECT_TRUE(std::isnan(var(one).item()));
  EXPECT_EQ(var(one, {}, 0).item(), 0);
}

TEST(Reduce, Errors) {
  const Tensor x = empty({2, 3});
  EXPECT_EQ(error_of([&] {
              sum(x, {0, -2});
            }),
            "[sum] expected each dim once, got [0, -2] for shape [2, 3]");
  EXPECT_THROW(sum(x, {2}), Error);
  EXPECT_THROW(sum(Tensor()), Error);
  EXPECT_THROW(norm(x, kNan), Error);
  EXPECT_EQ(error_of([&] { sum_to(x, {2}); }),
            "[sum_to] expected a shape that broadcasts to [2, 3], got [2]");
  EXPECT_THROW(sum_to(x, {1, 2, 3}), Error);
}

TEST(Extremes, NanWinsAndTheFirstOfTies) {
  const Tensor x = from_values(Doubles{1, kNan, 3, kNan, 7, 7, 2, 7}, {2, 4});
  EXPECT_TRUE(std::isnan(amax(x).item()));
  EXPECT_TRUE(std::isnan(amin(x).item()));
  EXPECT_EQ(argmax(x, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(argmin(x, 1, true).to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(argmax(x).item_int(), 1);
  const ValuesIndices along = max(strided(x), 0);
  EXPECT_EQ(along.indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(along.values.to_vector<double>()[3]));
  EXPECT_EQ(amax(full({3}, -kInf)).item(), -kInf);
  EXPECT_EQ(argmax(full({3}, -kInf), 0).item_int(), 0);
  EXPECT_EQ(argmin(arange(200) * -1.0, 0).item_int(), 199);  // past the first stretch looked at
}

TEST(Moments, HardValues) {
  EXPECT_EQ(logsumexp(full({2}, 1000.0, {.dtype = f64})).item(), 1000 + std::log(2.0));
  EXPECT_EQ(logsumexp(full({2}, -kInf)).item(), -kInf);
  EXPECT_EQ(logsumexp(from_values(Doubles{kInf, 0})).item(), kInf);
  EXPECT_TRUE(std::isnan(logsumexp(from_values(Doubles{kNan, 0})).item()));
  EXPECT_NEAR(var(full({1000}, 1e6) + arange(0.0, 1000.0, 1.0, {}) * 0.5).item(), 250.0 * 83.4166,
              30);
  EXPECT_EQ(norm(from_values(Doubles{-3, 2, 0}), -kInf).item(), 0);
}

TEST(Reduce, Gradcheck) {
  for (const ReduceRow& row : reduce_rows()) {
    for (const Shape& dims : std::vector<Shape>{{}, {0}, {1}, {0, 2}}) {
      for (const bool keep : {false, true}) {
        const auto f = [&](const Inputs& in) { return row.op(in[0], dims, keep); };
        EXPECT_EQ(gradcheck(f, {leaf({3, 4, 2})}), "") << row.name << to_string(dims);
        EXPECT_EQ(gradcheck(f, {strided(leaf({3, 4, 2}))}), "")
            << row.name << to_string(dims) << " strided";
      }
    }
  }
  const Shape shape{3, 4};
  EXPECT_EQ(gradcheck([](const Inputs& in) { return sum(in[0], {1}); }, {repeated(shape)}), "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return prod(in[0], {1}); }, {repeated(shape)}), "");
  EXPECT_EQ(gradcheck([](const Inputs& in) { return sum_to(in[0], {4}); }, {leaf(shape)}), "");
  EXPECT_EQ(gradcheck(
                [](const Inputs& in) {
                  return sum_to(in[0], {3, 1});
                },
                {strided(leaf(shape))}),
            "");
  EXPECT_EQ(gradcheck(
                [](const Inputs& in) {
                  return sum_to(in[0], {1, 4});
                },
                {leaf({2, 3, 4})}),
            "");
  for (const int64_t dim : {0, 1}) {
    EXPECT_EQ(gradcheck([=](const Inputs& in) { return max(in[0], dim).values; }, {leaf(shape)}),
              "");
    EXPECT_EQ(gradcheck([=](const Inputs& in) { return min(in[0], dim, true).values; },
                        {strided(leaf(shape))}),
              "");
  }
  EXPECT_EQ(gradcheck([](const Inputs& in) { return sum(in[0]); }, {leaf({0, 3})}), "");
}

// The gradient of sum(op(x)) for these values of x.
Doubles gradient_of(const Doubles& values, const std::function<Tensor(const Tensor&)>& op) {
  const Tensor x = from_values(values);
  x.set_requires_grad();
  sum(op(x)).backward();
  return x.grad().to_vector<double>();
}

TEST(Reduce, GradientsAtKinks) {
  const auto product = [](const Tensor& x) { return prod(x); };
  EXPECT_EQ(gradient_of({2, 0, 3}, product), (Doubles{0, 6, 0}));
  EXPECT_EQ(gradient_of({0, 0, 3}, product), (Doubles{0, 0, 0}));
  for (const double p : {0.0, 0.5, 1.0, 2.0, 3.0}) {
    EXPECT_EQ(gradient_of({0, 0}, [p](const Tensor& x) { return norm(x, p); }), (Doubles{0, 0}))
        << p;
  }
  EXPECT_EQ(gradient_of({5, 5, 1, 5}, [](const Tensor& x) { return max(x); }),
            (Doubles{1. / 3, 1. / 3, 0, 1. / 3}));
  EXPECT_EQ(gradient_of({-5, 5, 1}, [](const Tensor& x) { return norm(x, kInf); }),
            (Doubles{-0.5, 0.5, 0}));
  EXPECT_EQ(gradient_of({5, 5, 1}, [](const Tensor& x) { return max(x, 0).values; }),
            (Doubles{1, 0, 0}));
  EXPECT_EQ(gradient_of({5, 5}, [](const Tensor& x) { return stddev(x); }), (Doubles{0, 0}));
  EXPECT_EQ(gradient_of({-kInf, -kInf}, [](const Tensor& x) { return logsumexp(x); }),
            (Doubles{0, 0}));
}

// A gradient that is a broadcast view must not be added to in place, nor kept as a leaf's.
TEST(Reduce, GradientsOfTwoSumsAddUp) {
  const Tensor x = leaf({3, 4});
  (sum(x) + sum(x) + sum(sum(x * x, {1}))).backward();
  const auto values = x.to_vector<double>();
  const auto gradient = x.grad().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(gradient[i], 2 + 2 * values[i], 1e-12);
  EXPECT_TRUE(x.grad().is_contiguous());
}

TEST(Reduce, OutputsChangedInPlaceAreNoticed) {
  const Tensor x = leaf({4});
  const Tensor y = norm(x);
  {
    const NoGrad no_grad;
    mul_(x.detach(), 2.0);
  }
  EXPECT_THROW(y.backward(), Error);
}

}  // namespace
}  // namespace weft
