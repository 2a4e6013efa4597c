// The safetensors file format: an 8-byte little-endian header length, a JSON header that names
// dtype, shape and place of every tensor, then the bytes. Python's `safetensors` reads what this
// writes, and the other way round.
#pragma once

#include "core/tensor.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Writes the tensors (any strides; stored row-major) and the string metadata. The file appears
// whole or not at all: it is written beside `path`, synced and renamed, so that a failure leaves an
// earlier file as it was. Names must differ.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      std::span<const std::pair<std::string, std::string>> metadata = {});

// Reads all tensors, in the order of their places. Header, names, dtypes, shapes and places are
// checked against the file's size before anything is allocated; what is wrong throws an Error
// naming the file and the tensor.
std::vector<NamedTensor> load_safetensors(const std::string& path);

// The same from memory; `name` stands for the file in errors.
std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name);

}  // namespace weft
