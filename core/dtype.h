// Element types and the promotion rules users know from NumPy and PyTorch.
#pragma once

#include "core/error.h"
#include "core/half.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace weft {

enum class DType : uint8_t { boolean, u8, i32, i64, f16, bf16, f32, f64 };

inline constexpr DType boolean = DType::boolean;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;

// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  return dtype >= DType::f16;
}
constexpr bool is_integral(DType dtype) {
  return dtype < DType::f16;
}  // bool included

// "f32", "bf16", "bool", …
std::string to_string(DType dtype);
// Inverse of to_string; throws on an unknown name.
DType dtype_from_name(std::string_view name);

// The type of `a op b` for tensors: the wider of two integers, the wider of two floats, float over
// integer, integer over bool; f16 with bf16 gives f32 (torch.result_type).
DType promote(DType a, DType b);

// The dtype that arithmetic on `dtype` computes in: f32 for the 16-bit floats, f64 and f32 as they
// are, i64 for every integer.
constexpr DType compute_dtype(DType dtype) {
  if (dtype == DType::f64) return DType::f64;
  return is_floating(dtype) ? DType::f32 : DType::i64;
}

// C++ type → DType. `bool` is stored as one byte holding 0 or 1.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;

// Calls f.template operator()<T>() with the C++ type of `dtype`.
template <class F>
decltype(auto) dispatch_all(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
      return f.template operator()<bool>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::f16:
      return f.template operator()<Float16>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
  }
  throw_error("dtype", {"unknown element type ", static_cast<int>(dtype)});
}

// A real number as an integer: the nearest that T holds; NaN becomes 0.
template <class T, class S>
T nearest_integer(S value) {
  if (value != value) return 0;
  if (value <= static_cast<S>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<S>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// A number of any kind, as an argument beside tensors. Its category takes part in promotion, its
// width does not: an i32 tensor plus 1 is i32, plus 1.5 is f32.
class Scalar {
 public:
  Scalar(bool value) : kind_(DType::boolean), integer_(value) {}
  Scalar(int value) : kind_(DType::i64), integer_(value) {}
  Scalar(long value) : kind_(DType::i64), integer_(value) {}
  Scalar(long long value) : kind_(DType::i64), integer_(value) {}
  Scalar(float value) : kind_(DType::f64), real_(value) {}
  Scalar(double value) : kind_(DType::f64), real_(value) {}

  bool is_floating() const { return kind_ == DType::f64; }
  bool is_bool() const { return kind_ == DType::boolean; }
  double to_double() const { return is_floating() ? real_ : static_cast<double>(integer_); }
  int64_t to_int() const { return is_floating() ? nearest_integer<int64_t>(real_) : integer_; }

 private:
  DType kind_;
  union {
    int64_t integer_;
    double real_;
  };
};

// The dtype of `tensor op scalar`.
DType promote(DType tensor, const Scalar& scalar);

}  // namespace weft
