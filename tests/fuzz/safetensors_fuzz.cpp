// Any bytes either parse as safetensors or throw weft::Error; nothing else may happen.
#include "core/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tensors =
        weft::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    // What parsed must be readable throughout, and have come from the input.
    volatile double sum = 0;
    size_t bytes = 0;
    for (const weft::NamedTensor& entry : tensors) {
      for (const double value : entry.tensor.to_vector<double>())
        sum = sum + value;
      bytes += static_cast<size_t>(entry.tensor.bytes());
    }
    if (bytes > size) std::abort();
  } catch (const weft::Error&) {
  }
  return 0;
}
