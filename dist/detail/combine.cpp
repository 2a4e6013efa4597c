#include "dist/detail/combine.h"

#include "ops/detail/convert.h"

#include <cstring>
#include <type_traits>

// Says that iterations do not depend on each other, also where out is exactly a or b.
#if defined(__clang__)
// Where it does not vectorise at all, which is below -O2, that is no fault.
#pragma clang diagnostic ignored "-Wpass-failed"
#define WEFT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEFT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace weft::dist::detail {
namespace {

// Signed integers wrap as unsigned ones do.
template <class T>
struct Bits {
  using type = T;
};
template <>
struct Bits<int32_t> {
  using type = uint32_t;
};
template <>
struct Bits<int64_t> {
  using type = uint64_t;
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    using U = typename Bits<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    using U = typename Bits<T>::type;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return ((a > b) | (a != a)) ? a : b;
    return a > b ? a : b;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return ((a < b) | (a != a)) ? a : b;
    return a < b ? a : b;
  }
};

template <class Op, class T>
void run(std::byte* out, const std::byte* a, const std::byte* b, int64_t count) {
  auto* to = reinterpret_cast<T*>(out);
  const auto* x = reinterpret_cast<const T*>(a);
  const auto* y = reinterpret_cast<const T*>(b);
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < count; ++i)
    to[i] = Op::apply(x[i], y[i]);
}

template <class Op>
void run(std::byte* out, const std::byte* a, const std::byte* b, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return run<Op, float>(out, a, b, count);
    case DType::f64:
      return run<Op, double>(out, a, b, count);
    case DType::i64:
      return run<Op, int64_t>(out, a, b, count);
    case DType::i32:
      return run<Op, int32_t>(out, a, b, count);
    case DType::u8:
      return run<Op, uint8_t>(out, a, b, count);
    default:
      throw_error("fold", {"expected f32, f64, i64, i32 or u8, got ", dtype});
  }
}

}  // namespace

void combine(std::byte* out, const std::byte* a, const std::byte* b, int64_t count, DType dtype,
             ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return run<Sum>(out, a, b, count, dtype);
    case ReduceOp::max:
      return run<Max>(out, a, b, count, dtype);
    case ReduceOp::min:
      return run<Min>(out, a, b, count, dtype);
    case ReduceOp::product:
      return run<Product>(out, a, b, count, dtype);
  }
}

void divide(std::byte* values, int64_t count, DType dtype, int64_t divisor) {
  if (dtype == f32) {
    auto* x = reinterpret_cast<float*>(values);
    for (int64_t i = 0; i < count; ++i)
      x[i] /= static_cast<float>(divisor);
  } else {
    auto* x = reinterpret_cast<double*>(values);
    for (int64_t i = 0; i < count; ++i)
      x[i] /= static_cast<double>(divisor);
  }
}

void convert(std::byte* out, DType to, const std::byte* in, DType from, int64_t count) {
  if (to == from) {
    if (out != in && count > 0) std::memcpy(out, in, static_cast<size_t>(count * size_of(to)));
  } else if (to == f32) {
    weft::detail::load_run(reinterpret_cast<float*>(out), in, from, 1, count);
  } else if (to == f64) {
    weft::detail::load_run(reinterpret_cast<double*>(out), in, from, 1, count);
  } else if (from == f64) {
    weft::detail::store_run(out, to, 1, reinterpret_cast<const double*>(in), count);
  } else {
    weft::detail::store_run(out, to, 1, reinterpret_cast<const float*>(in), count);
  }
}

}  // namespace weft::dist::detail
