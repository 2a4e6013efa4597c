#include "core/dtype.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {
constexpr std::array<std::string_view, 8> kDTypeNames = {"bool", "u8",   "i32", "i64",
                                                         "f16",  "bf16", "f32", "f64"};
}

std::string to_string(DType dtype) {
  return std::string(kDTypeNames[static_cast<size_t>(dtype)]);
}

DType dtype_from_name(std::string_view name) {
  const auto found = std::find(kDTypeNames.begin(), kDTypeNames.end(), name);
  WEFT_CHECK(found != kDTypeNames.end(), "dtype",
             "expected one of bool u8 i32 i64 f16 bf16 f32 f64, got '", name, "'");
  return static_cast<DType>(found - kDTypeNames.begin());
}

DType promote(DType a, DType b) {
  const bool sixteen_bit_pair =
      (a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16);
  return sixteen_bit_pair ? DType::f32 : std::max(a, b);  // the enumerators are ordered for this
}

DType promote(DType tensor, const Scalar& scalar) {
  if (scalar.is_floating()) return is_floating(tensor) ? tensor : DType::f32;
  if (scalar.is_bool() || tensor != DType::boolean) return tensor;
  return DType::i64;
}

}  // namespace weft
