// Any bytes either parse as IDX or throw weft::Error; nothing else may happen.
#include "data/idx.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const weft::Tensor values =
        weft::data::parse_idx({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    // What parsed must be readable throughout.
    volatile double sum = 0;
    for (const double value : values.to_vector<double>())
      sum = sum + value;
  } catch (const weft::Error&) {
  }
  return 0;
}
