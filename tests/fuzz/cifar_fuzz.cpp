// Any bytes either parse as CIFAR records or throw weft::Error.
#include "data/cifar.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::data::Cifar;
  for (const Cifar kind : {Cifar::ten, Cifar::hundred, Cifar::hundred_coarse}) {
    try {
      const auto records =
          weft::data::parse_cifar({reinterpret_cast<const std::byte*>(data), size}, "fuzz", kind);
      volatile double sum = 0;
      for (const double value : records.images.to_vector<double>())
        sum = sum + value;
      for (const double label : records.labels.to_vector<double>())
        sum = sum + label;
    } catch (const weft::Error&) {
    }
  }
  return 0;
}
