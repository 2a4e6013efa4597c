// Elementwise operators: one declaration a row of elementwise.def, and their spellings as C++
// operators.
//
// Shapes broadcast (NumPy rules), dtypes promote (core/dtype.h), 16-bit floats compute in f32. The
// result is laid out like the first input that has the result's shape, so channels-last images stay
// channels-last. A name with a trailing underscore changes its first argument in place and returns
// it; the result's shape and dtype must be that of the argument.
#pragma once

#include "core/tensor.h"

#include <limits>

namespace weft {

#define WEFT_UNARY(name, functor, domain, low, high, reference) \
  Tensor name(const Tensor& x);                                 \
  Tensor name##_(const Tensor& x);
#define WEFT_UNARY_1(name, functor, domain, low, high, parameter, value, test_value, reference) \
  Tensor name(const Tensor& x, double parameter = value);                                       \
  Tensor name##_(const Tensor& x, double parameter = value);
#define WEFT_UNARY_2(name, functor, domain, low, high, first, first_value, first_test, second, \
                     second_value, second_test, reference)                                     \
  Tensor name(const Tensor& x, double first = first_value, double second = second_value);      \
  Tensor name##_(const Tensor& x, double first = first_value, double second = second_value);
#define WEFT_PREDICATE(name, functor, reference) Tensor name(const Tensor& x);
#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, reference) \
  Tensor name(const Tensor& a, const Tensor& b);                                    \
  Tensor name(const Tensor& a, Scalar b);                                           \
  Tensor name(Scalar a, const Tensor& b);                                           \
  Tensor name##_(const Tensor& a, const Tensor& b);                                 \
  Tensor name##_(const Tensor& a, Scalar b);
#define WEFT_COMPARE(name, functor, reference)   \
  Tensor name(const Tensor& a, const Tensor& b); \
  Tensor name(const Tensor& a, Scalar b);
#include "ops/elementwise.def"

inline Tensor operator-(const Tensor& x) {
  return neg(x);
}

#define WEFT_OPERATOR(symbol, name)                                    \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) {    \
    return name(a, b);                                                 \
  }                                                                    \
  inline Tensor operator symbol(const Tensor& a, Scalar b) {           \
    return name(a, b);                                                 \
  }                                                                    \
  inline Tensor operator symbol(Scalar a, const Tensor& b) {           \
    return name(a, b);                                                 \
  }                                                                    \
  inline Tensor operator symbol##=(const Tensor& a, const Tensor& b) { \
    return name##_(a, b);                                              \
  }                                                                    \
  inline Tensor operator symbol##=(const Tensor& a, Scalar b) {        \
    return name##_(a, b);                                              \
  }
WEFT_OPERATOR(+, add)
WEFT_OPERATOR(-, sub)
WEFT_OPERATOR(*, mul)
WEFT_OPERATOR(/, div)
#undef WEFT_OPERATOR

}  // namespace weft
