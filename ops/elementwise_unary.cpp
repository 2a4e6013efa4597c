#include "ops/detail/elementwise.h"
#include "ops/elementwise.h"

namespace weft {

#define WEFT_UNARY(name, functor, domain, low, high, reference)                               \
  Tensor name(const Tensor& x) {                                                              \
    return detail::unary<detail::Domain::domain>(#name, x, functors::functor{});              \
  }                                                                                           \
  Tensor name##_(const Tensor& x) {                                                           \
    return detail::unary_in_place<detail::Domain::domain>(#name "_", x, functors::functor{}); \
  }
#define WEFT_UNARY_1(name, functor, domain, low, high, parameter, value, test_value, reference) \
  Tensor name(const Tensor& x, double parameter) {                                              \
    return detail::unary<detail::Domain::domain>(#name, x, functors::functor{parameter});       \
  }                                                                                             \
  Tensor name##_(const Tensor& x, double parameter) {                                           \
    return detail::unary_in_place<detail::Domain::domain>(#name "_", x,                         \
                                                          functors::functor{parameter});        \
  }
#define WEFT_UNARY_2(name, functor, domain, low, high, first, first_value, first_test, second, \
                     second_value, second_test, reference)                                     \
  Tensor name(const Tensor& x, double first, double second) {                                  \
    return detail::unary<detail::Domain::domain>(#name, x, functors::functor{first, second});  \
  }                                                                                            \
  Tensor name##_(const Tensor& x, double first, double second) {                               \
    return detail::unary_in_place<detail::Domain::domain>(#name "_", x,                        \
                                                          functors::functor{first, second});   \
  }
#define WEFT_PREDICATE(name, functor, reference)             \
  Tensor name(const Tensor& x) {                             \
    return detail::predicate(#name, x, functors::functor{}); \
  }
#include "ops/elementwise.def"

}  // namespace weft
