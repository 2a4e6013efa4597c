// Any bytes either parse as safetensors or throw weft::Error; nothing else may happen.
#include "core/safetensors.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const weft::NamedTensor& entry :
         weft::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz")) {
      volatile double sum = 0;
      for (const double value : entry.tensor.to_vector<double>())
        sum = sum + value;
    }
  } catch (const weft::Error&) {
  }
  return 0;
}
