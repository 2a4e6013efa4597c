// Golden values: tensors that PyTorch has computed, from tests/golden.
#pragma once

#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::test {

// The tensor of that name; where the file has none the test fails, and the tensor is undefined.
inline Tensor golden_tensor(const std::string& file, const std::string& name) {
  for (const NamedTensor& entry : load_safetensors(file)) {
    if (entry.name == name) return entry.tensor;
  }
  ADD_FAILURE() << file << ": expected a tensor " << name << ", got none";
  return {};
}

}  // namespace weft::test
