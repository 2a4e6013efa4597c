// Every differentiable operator that is not elementwise, a row each, under every dtype and layout.
// What is particular to an operator, and its values against a reference of its own, is in the test
// of its header; elementwise operators have their rows in ops/elementwise.def.
// tests/architecture/op_table.py fails when an operator has no row.
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/support/tensors.h"

#include <gtest/gtest.h>

#include <functional>

namespace weft {
namespace {

using test::leaf;
using test::strided;
using Inputs = std::vector<Tensor>;
using Shapes = std::vector<Shape>;

// What holds of most operators, and where a row departs from it.
struct Traits {
  bool has_kinks = false;   // where inputs are equal: no gradcheck there
  bool f32_result = false;  // of 16-bit inputs
  double rounding = 4;      // of 16-bit results and gradients, in units of their dtype
};

struct OpRow {
  const char* name;
  Shapes shapes;  // of the floating inputs, all of which get gradients
  Shapes empty;   // the same with nothing in them
  std::function<Tensor(const Inputs&)> call;
  Traits traits = {};
};

// 0, 1, …, n-1, 0, 1, …: indices and labels.
Tensor cycle(const Shape& shape, int64_t n) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(i * 7 % n);
  return from_values(values, shape);
}
// True at every third element.
Tensor mask(const Shape& shape) {
  return eq(cycle(shape, 3), 0);
}

constexpr Traits kKinks{.has_kinks = true};
constexpr Traits kLoss{.f32_result = true};

#define ROW(name, shapes, empty, expression, ...)                                        \
  {                                                                                      \
#name, Shapes shapes, Shapes empty,                                                  \
        [](const Inputs& in) -> Tensor { return expression; } __VA_OPT__(, ) __VA_ARGS__ \
  }

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> list = {
#include "tests/ops/op_rows.def"
  };
  return list;
}

Inputs leaves(const Shapes& shapes) {
  Inputs in;
  for (const Shape& shape : shapes)
    in.push_back(leaf(shape, in.size() + 1));
  return in;
}

// The same draws in every call, for operators that draw.
Tensor call(const OpRow& row, const Inputs& in) {
  manual_seed(5);
  return row.call(in);
}

TEST(OpRows, TakeAnyLayout) {
  for (const OpRow& row : op_rows()) {
    for (const DType dtype : {f64, f32, bf16}) {
      Inputs in;
      for (const Tensor& x : leaves(row.shapes))
        in.push_back(to(x.detach(), dtype));
      const Tensor expected = call(row, in);
      for (size_t i = 0; i < in.size(); ++i) {
        Inputs mixed = in;
        mixed[i] = strided(in[i]);
        const Tensor out = call(row, mixed);
        EXPECT_EQ(out.dtype(), expected.dtype()) << row.name;
        test::expect_near(out, expected, 2 * test::tolerance_of(dtype), row.name);
      }
    }
  }
}

TEST(OpRows, GradientsAgreeWithDifferences) {
  for (const OpRow& row : op_rows()) {
    const auto check = [&](const Inputs& in, const std::string& what) {
      EXPECT_EQ(gradcheck(row.call, in), "") << row.name << " " << what;
    };
    check(leaves(row.shapes), "row-major");
    Inputs apart = leaves(row.shapes);
    for (Tensor& x : apart)
      x = strided(x);
    check(apart, "strided");
    for (size_t i = 0; i < row.shapes.size(); ++i) {
      Inputs one = leaves(row.shapes);
      for (size_t j = 0; j < one.size(); ++j)
        one[j].set_requires_grad(j == i);
      check(one, "one input");
      if (row.traits.has_kinks) continue;
      one = leaves(row.shapes);
      one[i] = test::repeated(row.shapes[i]);
      check(one, "stride 0");
    }
    check(leaves(row.empty), "empty");
  }
}

// The lower precisions against f64 of the same numbers.
TEST(OpRows, AgreeInEveryDtype) {
  for (const OpRow& row : op_rows()) {
    for (const DType dtype : {f32, bf16, f16}) {
      const std::string what = std::string(row.name) + " " + to_string(dtype);
      Inputs in, wide;
      for (const Tensor& x : leaves(row.shapes)) {
        in.push_back(to(x.detach(), dtype).set_requires_grad());
        wide.push_back(to(in.back().detach(), f64).set_requires_grad());
      }
      const Tensor out = call(row, in);
      const Tensor expected = call(row, wide);
      EXPECT_EQ(out.dtype(), row.traits.f32_result ? f32 : dtype) << what;
      const double tolerance =
          (dtype == f32 ? 10 : row.traits.rounding) * test::tolerance_of(dtype);
      test::expect_near(out, expected, tolerance, what);
      const Tensor weight = to(test::normal(out.shape(), 9), out.dtype());
      backward(out, weight);
      backward(expected, to(weight, f64));
      for (size_t i = 0; i < in.size(); ++i) {
        const std::string which = what + ", gradient " + std::to_string(i);
        ASSERT_TRUE(in[i].grad().defined()) << which;
        EXPECT_EQ(in[i].grad().dtype(), dtype) << which;
        test::expect_near(in[i].grad(), wide[i].grad(), tolerance, which);
      }
    }
  }
}

}  // namespace
}  // namespace weft
