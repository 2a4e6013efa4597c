#include "ops/detail/elementwise.h"
#include "ops/elementwise.h"

namespace weft {

#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, reference)           \
  Tensor name(const Tensor& a, const Tensor& b) {                                             \
    return detail::binary<detail::Domain::domain>(#name, a, b, functors::functor{});          \
  }                                                                                           \
  Tensor name(const Tensor& a, Scalar b) {                                                    \
    detail::check_defined(#name, a);                                                          \
    const DType dtype = detail::binary_dtype(promote(a.dtype(), b), detail::Domain::domain);  \
    return detail::binary<detail::Domain::domain>(#name, a, detail::scalar_operand(b, dtype), \
                                                  dtype, functors::functor{});                \
  }                                                                                           \
  Tensor name(Scalar a, const Tensor& b) {                                                    \
    detail::check_defined(#name, b);                                                          \
    const DType dtype = detail::binary_dtype(promote(b.dtype(), a), detail::Domain::domain);  \
    return detail::binary<detail::Domain::domain>(#name, detail::scalar_operand(a, dtype), b, \
                                                  dtype, functors::functor{});                \
  }                                                                                           \
  Tensor name##_(const Tensor& a, const Tensor& b) {                                          \
    detail::check_defined(#name "_", a);                                                      \
    detail::check_defined(#name "_", b);                                                      \
    detail::check_same_device(#name "_", a, b);                                               \
    const DType dtype =                                                                       \
        detail::binary_dtype(promote(a.dtype(), b.dtype()), detail::Domain::domain);          \
    return detail::binary_in_place<detail::Domain::domain>(#name "_", a, b, dtype,            \
                                                           functors::functor{});              \
  }                                                                                           \
  Tensor name##_(const Tensor& a, Scalar b) {                                                 \
    detail::check_defined(#name "_", a);                                                      \
    const DType dtype = detail::binary_dtype(promote(a.dtype(), b), detail::Domain::domain);  \
    return detail::binary_in_place<detail::Domain::domain>(                                   \
        #name "_", a, detail::scalar_operand(b, dtype), dtype, functors::functor{});          \
  }
#define WEFT_COMPARE(name, functor, reference)                                               \
  Tensor name(const Tensor& a, const Tensor& b) {                                            \
    detail::check_defined(#name, a);                                                         \
    detail::check_defined(#name, b);                                                         \
    detail::check_same_device(#name, a, b);                                                  \
    return detail::compare(#name, a, b, promote(a.dtype(), b.dtype()), functors::functor{}); \
  }                                                                                          \
  Tensor name(const Tensor& a, Scalar b) {                                                   \
    detail::check_defined(#name, a);                                                         \
    const DType dtype = promote(a.dtype(), b);                                               \
    return detail::compare(#name, a, detail::scalar_operand(b, dtype), dtype,                \
                           functors::functor{});                                             \
  }
#include "ops/elementwise.def"

}  // namespace weft
