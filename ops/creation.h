// Tensors from nothing: constants, ranges, random draws; and the in-place fills behind them.
//
// Random operators take the next key of random_state() (core/random.h); element i, counted in
// logical row-major order, is draw i of that key, so values depend on neither layout nor threads.
// 16-bit floats are drawn in f32. Filling in place ends a tensor's history: no gradient flows to
// what it held.
#pragma once

#include "core/tensor.h"

namespace weft {

Tensor zeros(const Shape& shape, Options options = {});
Tensor ones(const Shape& shape, Options options = {});
Tensor full(const Shape& shape, Scalar value, Options options = {});
// Of the same shape, dtype, device and layout.
Tensor zeros_like(const Tensor& like);
Tensor ones_like(const Tensor& like);
Tensor full_like(const Tensor& like, Scalar value);

// begin, begin + step, … up to but without end. Without options: i64 if all arguments are integers,
// else f32.
Tensor arange(Scalar end);
Tensor arange(Scalar begin, Scalar end, Scalar step = 1);
Tensor arange(Scalar begin, Scalar end, Scalar step, Options options);
// `count` values from begin to end, both included, symmetric about the middle. Floating dtypes.
Tensor linspace(double begin, double end, int64_t count, Options options = {});
// The identity matrix [rows, columns]; columns = rows unless given.
Tensor eye(int64_t rows, int64_t columns = -1, Options options = {});

Tensor fill_(const Tensor& target, Scalar value);
Tensor zero_(const Tensor& target);

// Uniform in [0, 1); standard normal. Floating dtypes.
Tensor rand(const Shape& shape, Options options = {});
Tensor randn(const Shape& shape, Options options = {});
// Integers in [low, high).
Tensor randint(int64_t low, int64_t high, const Shape& shape, Options options = {.dtype = i64});
// 1 with probability p, else 0; p is one number, or an element of `probabilities` each (and then
// the dtype).
Tensor bernoulli(const Shape& shape, double p, Options options = {});
Tensor bernoulli(const Tensor& probabilities);
// 0 … n-1 in random order (Fisher–Yates), i64.
Tensor randperm(int64_t n);

// Uniform in [low, high); normal; normal restricted to [low, high] by inverting its distribution
// function.
Tensor uniform_(const Tensor& target, double low = 0, double high = 1);
Tensor normal_(const Tensor& target, double mean = 0, double standard_deviation = 1);
Tensor trunc_normal_(const Tensor& target, double mean = 0, double standard_deviation = 1,
                     double low = -2, double high = 2);

}  // namespace weft
