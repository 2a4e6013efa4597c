// Tensors for tests: random leaves, the same values in awkward layouts, comparison.
#pragma once

#include "core/random.h"
#include "core/tensor.h"
#include "ops/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace weft::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Tensor ints(const std::vector<int64_t>& values, const Shape& shape) {
  return from_values(values, shape);
}

// 0, 1, 2, … in row-major order.
inline Tensor counted(const Shape& shape, DType dtype = i64) {
  std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return to(from_values(values, shape), dtype);
}

// Standard normal values that depend on `seed` alone.
inline Tensor normal(const Shape& shape, uint64_t seed = 1, DType dtype = f64) {
  const Tensor values = empty(shape, {.dtype = f64});
  fill_normal({.seed = seed}, 0, values.data<double>(), values.numel());
  if (dtype == f64) return values;
  const auto list = values.to_vector<float>();
  return from_values(list, shape);
}

// Uniform in [low, high], in `dtype`.
inline Tensor uniform(const Shape& shape, double low, double high, uint64_t seed,
                      DType dtype = f64) {
  const Tensor values = empty(shape, {.dtype = f64});
  fill_uniform({.seed = seed}, 0, values.data<double>(), values.numel());
  auto* x = values.data<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    x[i] = low + (high - low) * x[i];
  return to(values, dtype);
}

// Relative error of a computation in `dtype` whose result is stored in it.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case f64:
      return 1e-14;
    case f32:
      return 2e-6;
    case f16:
      return 1e-3;
    default:
      return 8e-3;
  }
}

// A leaf of normal values that wants a gradient.
inline Tensor leaf(const Shape& shape, uint64_t seed = 1) {
  const Tensor tensor = normal(shape, seed);
  tensor.set_requires_grad();
  return tensor;
}

// The same values with gaps between them and the dims in reverse order of memory: contiguous
// nowhere.
inline Tensor strided(const Tensor& x) {
  Shape reversed;
  for (int i = x.dims() - 1; i >= 0; --i)
    reversed.push_back(x.shape()[i]);
  reversed.push_back(2);
  const Tensor buffer = empty(reversed, x.options());
  Strides strides = Strides::filled(x.dims(), 0);
  for (int i = 0; i < x.dims(); ++i)
    strides[i] = buffer.strides()[x.dims() - 1 - i];
  const Tensor view = alias(buffer, x.shape(), strides);
  const Tensor source = contiguous(x.detach());
  const int64_t size = size_of(x.dtype());
  // Odometer over the logical order.
  Shape at = Shape::filled(x.dims(), 0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t offset = 0;
    for (int d = 0; d < x.dims(); ++d)
      offset += at[d] * strides[d];
    std::memcpy(view.raw() + offset * size, source.raw() + i * size, static_cast<size_t>(size));
    for (int d = x.dims() - 1; d >= 0 && ++at[d] == x.shape()[d]; --d)
      at[d] = 0;
  }
  view.set_requires_grad(x.requires_grad());
  return view;
}

// One value repeated along every dim, by strides of 0; a leaf that wants a gradient.
inline Tensor repeated(const Shape& shape, double value = 0.7) {
  const Tensor one = from_values(std::vector<double>{value});
  const Tensor view = alias(one, shape, Strides::filled(shape.dims(), 0));
  view.set_requires_grad();
  return view;
}

inline void expect_near(const Tensor& actual, const Tensor& expected, double relative,
                        const std::string& what = "") {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const auto a = actual.to_vector<double>();
  const auto e = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(e[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << what << " element " << i;
    } else if (std::isinf(e[i])) {
      EXPECT_EQ(a[i], e[i]) << what << " element " << i;
    } else {
      EXPECT_NEAR(a[i], e[i], relative * std::max(1.0, std::abs(e[i]))) << what << " element " << i;
    }
  }
}

// The message of the weft::Error that `body` throws, or "no error".
template <class F>
std::string error_of(F body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace weft::test
