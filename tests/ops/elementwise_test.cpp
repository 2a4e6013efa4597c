// Every row of elementwise.def under every dtype, layout and broadcast, written by the rows
// themselves. What is particular to some operators is in elementwise_values_test.cpp.
#include "ops/elementwise.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/gradcheck.h"
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace weft {
namespace {

using test::kInf;
using test::kNan;
using test::strided;
using test::tolerance_of;
using test::uniform;
using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;
using Reference = std::function<double(double, double)>;

enum class Domain { real, any };

// A row as the tests see it. Unary rows ignore b.
struct ElementwiseRow {
  const char* name;
  int arity;
  Domain domain;
  double low_a, high_a, low_b, high_b;
  Function call;
  std::function<Tensor(const Inputs&)> in_place;
  Reference reference;
};

constexpr Domain real = Domain::real;
constexpr Domain any = Domain::any;

std::vector<ElementwiseRow> elementwise_rows() {
  return {
#define WEFT_UNARY(name, functor, domain, low, high, expression) \
  {#name,                                                        \
   1,                                                            \
   domain,                                                       \
   low,                                                          \
   high,                                                         \
   0,                                                            \
   0,                                                            \
   [](const Inputs& in) { return name(in[0]); },                 \
   [](const Inputs& in) { return name##_(in[0]); },              \
   [](double x, double) { return static_cast<double>(expression); }},
#define WEFT_UNARY_1(name, functor, domain, low, high, parameter, value, test_value, expression) \
  {#name,                                                                                        \
   1,                                                                                            \
   domain,                                                                                       \
   low,                                                                                          \
   high,                                                                                         \
   0,                                                                                            \
   0,                                                                                            \
   [](const Inputs& in) { return name(in[0], test_value); },                                     \
   [](const Inputs& in) { return name##_(in[0], test_value); },                                  \
   [](double x, double) { return static_cast<double>(expression); }},
#define WEFT_UNARY_2(name, functor, domain, low, high, first, first_value, first_test, second, \
                     second_value, second_test, expression)                                    \
  {#name,                                                                                      \
   1,                                                                                          \
   domain,                                                                                     \
   low,                                                                                        \
   high,                                                                                       \
   0,                                                                                          \
   0,                                                                                          \
   [](const Inputs& in) { return name(in[0], first_test, second_test); },                      \
   [](const Inputs& in) { return name##_(in[0], first_test, second_test); },                   \
   [](double x, double) { return static_cast<double>(expression); }},
#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, expression) \
  {#name,                                                                            \
   2,                                                                                \
   domain,                                                                           \
   low_a,                                                                            \
   high_a,                                                                           \
   low_b,                                                                            \
   high_b,                                                                           \
   [](const Inputs& in) { return name(in[0], in[1]); },                              \
   [](const Inputs& in) { return name##_(in[0], in[1]); },                           \
   [](double a, double b) { return static_cast<double>(expression); }},
#include "ops/elementwise.def"
  };
}

struct Condition {
  const char* name;
  int arity;
  Function call;
  std::function<bool(double, double)> reference;
};
std::vector<Condition> conditions() {
  return {
#define WEFT_COMPARE(name, functor, expression)                   \
  {#name, 2, [](const Inputs& in) { return name(in[0], in[1]); }, \
   [](double a, double b) { return static_cast<bool>(expression); }},
#define WEFT_PREDICATE(name, functor, expression)          \
  {#name, 1, [](const Inputs& in) { return name(in[0]); }, \
   [](double x, double) { return static_cast<bool>(expression); }},
#include "ops/elementwise.def"
  };
}

Inputs inputs_of(const ElementwiseRow& row, const Shape& a, const Shape& b, DType dtype,
                 bool requires_grad = false) {
  Inputs in{uniform(a, row.low_a, row.high_a, 11, dtype)};
  if (row.arity == 2) in.push_back(uniform(b, row.low_b, row.high_b, 12, dtype));
  for (const Tensor& x : in)
    x.set_requires_grad(requires_grad);
  return in;
}

// The row's reference on broadcast inputs of equal shape, integers truncated as the operator
// truncates them.
void expect_row(const ElementwiseRow& row, const Inputs& in, const Tensor& out, double tolerance,
                const std::string& what) {
  const auto a = in[0].to_vector<double>();
  const auto b = in.back().to_vector<double>();
  const auto y = out.to_vector<double>();
  ASSERT_EQ(y.size(), a.size()) << what;
  for (size_t i = 0; i < y.size(); ++i) {
    double expected = row.reference(a[i], b[i]);
    if (is_integral(out.dtype())) expected = std::trunc(expected);
    EXPECT_NEAR(y[i], expected, tolerance * std::max(1.0, std::abs(expected)))
        << what << " of " << a[i] << ", " << b[i];
  }
}

std::string label(const ElementwiseRow& row, const std::string& what) {
  return std::string(row.name) + " " + what;
}

TEST(ElementwiseRows, AgreeWithTheReferenceInEveryDtype) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    for (const DType dtype : {f32, f64, f16, bf16}) {
      const Inputs in = inputs_of(row, {1237}, {1237}, dtype);
      const Tensor out = row.call(in);
      EXPECT_EQ(out.dtype(), dtype) << row.name;
      expect_row(row, in, out, tolerance_of(dtype), label(row, to_string(dtype)));
    }
  }
}

TEST(ElementwiseRows, KeepIntegersOrPromoteThem) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    const std::string name = row.name;
    if (name == "clamp") continue;  // its bounds are not whole: see Clamp below
    // Positive where a pole or a fraction would have no whole counterpart.
    const double low = row.domain == real || name == "pow" ? 1 : -5;
    for (const DType dtype : {i64, i32}) {
      const Inputs in{uniform({37}, low, 6, 1, dtype), uniform({37}, low, 6, 2, dtype)};
      const Tensor out = row.call(in);
      EXPECT_EQ(out.dtype(), row.domain == any ? dtype : f32) << name;
      expect_row(row, in, out, 2e-6, label(row, to_string(dtype)));
    }
  }
}

TEST(ElementwiseRows, TakeAnyLayout) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    Inputs in = inputs_of(row, {5, 3, 7}, {5, 3, 7}, f64);
    const Tensor expected = row.call(in);
    for (size_t i = 0; i < in.size(); ++i) {
      Inputs mixed = in;
      mixed[i] = strided(in[i]);
      const Tensor out = row.call(mixed);
      EXPECT_EQ(out.to_vector<double>(), expected.to_vector<double>()) << row.name;
    }
  }
}

TEST(ElementwiseRows, Broadcast) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    if (row.arity != 2) continue;
    const Inputs in = inputs_of(row, {3, 1}, {1, 4}, f64);
    const Tensor out = row.call(in);
    ASSERT_EQ(out.shape(), (Shape{3, 4})) << row.name;
    const Inputs expanded{alias(in[0], {3, 4}, {1, 0}), alias(in[1], {3, 4}, {0, 1})};
    expect_row(row, expanded, out, 1e-14, label(row, "broadcast"));
    EXPECT_EQ(row.call({in[0], uniform({0}, 1, 2, 3)}).shape(), (Shape{3, 0})) << row.name;
  }
}

TEST(ElementwiseRows, TakeEmptyAndZeroDimTensors) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    EXPECT_EQ(row.call(inputs_of(row, {0}, {0}, f32)).shape(), (Shape{0})) << row.name;
    EXPECT_EQ(row.call(inputs_of(row, {2, 0, 3}, {2, 0, 3}, f32)).shape(), (Shape{2, 0, 3}))
        << row.name;
    const Inputs in = inputs_of(row, {}, {}, f64);
    const Tensor out = row.call(in);
    EXPECT_EQ(out.dims(), 0) << row.name;
    expect_row(row, in, out, 1e-14, label(row, "0-dim"));
  }
}

TEST(ElementwiseRows, GradientsAgreeWithDifferences) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    const auto check = [&](const Inputs& in, const char* what) {
      EXPECT_EQ(gradcheck(row.call, in), "") << label(row, what);
    };
    check(inputs_of(row, {2, 3}, {2, 3}, f64, true), "contiguous");
    Inputs in = inputs_of(row, {2, 3}, {2, 3}, f64, true);
    for (Tensor& x : in)
      x = strided(x);
    check(in, "strided");
    check(inputs_of(row, {0, 3}, {0, 3}, f64, true), "empty");
    check(inputs_of(row, {}, {}, f64, true), "0-dim");
    Inputs repeated{test::repeated({2, 3}, (row.low_a + row.high_a) / 2 + 0.3)};
    if (row.arity == 2)
      repeated.push_back(uniform({2, 3}, row.low_b, row.high_b, 5).set_requires_grad());
    check(repeated, "stride 0");
    if (row.arity == 2) {
      check(inputs_of(row, {3, 1}, {1, 4}, f64, true), "broadcast");
      check(inputs_of(row, {}, {4}, f64, true), "0-dim against 1-dim");
      for (const size_t fixed : {0, 1}) {
        in = inputs_of(row, {2, 3}, {3}, f64, true);
        in[fixed] = in[fixed].detach();
        check(in, "one input");
      }
    }
  }
}

TEST(ElementwiseRows, GradientsHaveTheDtypeOfTheirInput) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    Inputs in = inputs_of(row, {2, 3}, {3}, f32, true);
    if (row.arity == 2) in[1] = to(in[1].detach(), bf16).set_requires_grad();
    const Tensor out = row.call(in);
    backward(out, ones_like(out));
    for (const Tensor& x : in) {
      ASSERT_TRUE(x.grad().defined()) << row.name;
      EXPECT_EQ(x.grad().dtype(), x.dtype()) << row.name;
      EXPECT_EQ(x.grad().shape(), x.shape()) << row.name;
    }
  }
}

TEST(ElementwiseRows, InPlaceEqualsOutOfPlace) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    for (const DType dtype : {f32, bf16}) {
      const Inputs in = inputs_of(row, {3, 37}, {37}, dtype);
      const Tensor expected = row.call(in);
      const Tensor target = clone(in[0]);
      const uint32_t version = target.version();
      Inputs changed = in;
      changed[0] = target;
      EXPECT_TRUE(row.in_place(changed).is_same(target)) << row.name;
      EXPECT_EQ(target.to_vector<float>(), expected.to_vector<float>()) << row.name;
      EXPECT_GT(target.version(), version) << row.name;
    }
    const Inputs leaves = inputs_of(row, {3}, {3}, f32, true);
    EXPECT_THROW(row.in_place(leaves), Error) << row.name << ": a leaf while recording";
  }
}

TEST(ElementwiseRows, InPlaceGradientsAreRightOrRefused) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    const auto changed = [&](const Inputs& in) {
      Inputs copies = in;
      copies[0] = mul(in[0], 1.0);  // its node needs only the number
      return row.in_place(copies);
    };
    const Inputs in = inputs_of(row, {2, 3}, {2, 3}, f64, true);
    if (test::error_of([&] { changed(in); }) == "no error") {
      EXPECT_EQ(gradcheck([&](const Inputs& x) { return changed(x); }, in), "") << row.name;
    } else {
      const NoGrad no_grad;
      EXPECT_EQ(test::error_of([&] { changed(in); }), "no error") << row.name;
    }
  }
}

TEST(ElementwiseRows, KeepChannelsLast) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    Inputs in = inputs_of(row, {2, 3, 4, 5}, {3, 1, 1}, f32);
    const Tensor expected = row.call(in);
    in[0] = channels_last(in[0]);
    const Tensor out = row.call(in);
    EXPECT_TRUE(out.is_channels_last()) << row.name;
    EXPECT_EQ(out.to_vector<float>(), expected.to_vector<float>()) << row.name;
    in[0].set_requires_grad();
    const Tensor y = row.call(in);
    backward(y, ones_like(y));
    EXPECT_TRUE(in[0].grad().is_channels_last()) << row.name;
  }
}

// The bits of an element are those of its value alone: not of its place, its neighbours, the tail,
// the threads.
TEST(ElementwiseRows, BitsDoNotDependOnPlaceOrThreads) {
  for (const ElementwiseRow& row : elementwise_rows()) {
    for (const DType dtype : {f32, f64, bf16}) {
      const Inputs in = inputs_of(row, {70'001}, {70'001}, dtype);
      set_num_threads(1);
      const auto whole = row.call(in).to_vector<double>();
      set_num_threads(3);
      EXPECT_EQ(row.call(in).to_vector<double>(), whole) << row.name;
      set_num_threads(1);
      for (const int64_t length : {1, 2, 3, 5, 7, 9, 15, 17, 31, 513}) {
        for (const int64_t from : {0, 1, 6, 511, 40'003}) {
          Inputs part = in;
          for (Tensor& x : part)
            x = alias(x, {length}, {1}, from);
          const auto piece = row.call(part).to_vector<double>();
          const auto first = whole.begin() + from;
          ASSERT_EQ(piece, std::vector<double>(first, first + length))
              << label(row, to_string(dtype)) << " [" << from << ", +" << length << ")";
        }
      }
    }
  }
}

TEST(ElementwiseRows, ScalarsEqualTensorsOfOneElement) {
  for (const DType dtype : {f32, f64, bf16}) {
    const Tensor x = uniform({41}, 0.5, 3, 4, dtype);
    const Tensor two = to(full({}, 1.75), dtype);
#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, expression)       \
  EXPECT_EQ(name(x, 1.75).to_vector<double>(), name(x, two).to_vector<double>()) << #name; \
  EXPECT_EQ(name(1.75, x).to_vector<double>(), name(two, x).to_vector<double>()) << #name; \
  EXPECT_EQ(name##_(clone(x), 1.75).to_vector<double>(), name(x, two).to_vector<double>()) << #name;
#define WEFT_COMPARE(name, functor, expression) \
  EXPECT_EQ(name(x, 1.75).to_vector<double>(), name(x, two).to_vector<double>()) << #name;
#include "ops/elementwise.def"
  }
  const Inputs in{uniform({5}, 0.5, 3, 4).set_requires_grad()};
#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, expression)       \
  EXPECT_EQ(gradcheck([](const Inputs& x) { return name(x[0], 1.75); }, in), "") << #name; \
  EXPECT_EQ(gradcheck([](const Inputs& x) { return name(1.75, x[0]); }, in), "") << #name;
#include "ops/elementwise.def"
}

TEST(ElementwiseConditions, AgreeWithTheReference) {
  const std::vector<double> numbers{-kInf, -2, -1, -0.0, 0, 1, 2, 3, kInf, kNan};
  std::vector<double> left, right;
  for (const double a : numbers) {
    for (const double b : numbers) {
      left.push_back(a);
      right.push_back(b);
    }
  }
  for (const DType dtype : {f32, f64, f16, bf16}) {
    const Inputs in{to(from_values(left), dtype), to(from_values(right), dtype)};
    for (const Condition& condition : conditions()) {
      const Tensor out = condition.call(in);
      ASSERT_EQ(out.dtype(), boolean) << condition.name;
      const auto y = out.to_vector<int64_t>();
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], condition.reference(left[i], right[i]) ? 1 : 0)
            << condition.name << " " << left[i] << " " << right[i];
      }
      EXPECT_FALSE(out.requires_grad());
    }
  }
  const Tensor big = from_values(std::vector<int64_t>{(int64_t{1} << 53) + 1, 5});
  EXPECT_EQ(eq(big, from_values(std::vector<int64_t>{int64_t{1} << 53, 5})).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1}));  // exact where doubles are not
  EXPECT_EQ(gt(big, int64_t{1} << 53).to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
}

}  // namespace
}  // namespace weft
