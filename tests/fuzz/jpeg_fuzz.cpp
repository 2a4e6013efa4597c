// Any bytes that begin as a JPEG does: see image_fuzz.h.
#include "tests/fuzz/image_fuzz.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::fuzz::decode_everything({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
