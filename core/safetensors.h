// The safetensors file format: an 8-byte little-endian header length, a JSON header that names
// dtype, shape and place of every tensor, then the bytes, row-major. Python's `safetensors` reads
// what this writes, and the other way round (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include "core/ref.h"
#include "core/tensor.h"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Writes the tensors (any strides, of all dtypes) and the string metadata. The data begins at a
// multiple of 64 bytes, and wider dtypes come first, so that every tensor lies aligned for those
// who map the file. Names must differ and be UTF-8. The file appears whole or not at all: it is
// written beside `path`, synced and renamed, so that a failure leaves an earlier file as it was and
// nothing else behind.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      std::span<const std::pair<std::string, std::string>> metadata = {});

// A file opened for reading tensors one at a time, so that nobody needs memory for all of them.
class SafetensorsFile final : public RefCounted {
 public:
  struct Entry {
    std::string name;
    DType dtype = f32;
    Shape shape;
  };

  // Checks the header as load_safetensors does.
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile() override;

  // In the order of the header.
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const;
  // The values of one of them: new memory.
  Tensor read(size_t entry) const;

 private:
  class Reader;
  std::vector<Entry> entries_;
  std::string path_;
  Reader* reader_;  // owned
};

// Reads all tensors, in the order of the header (that of saving). Header, names, dtypes, shapes and
// places are checked against the file's size before anything is allocated; what is wrong throws an
// Error naming the file and the tensor.
std::vector<NamedTensor> load_safetensors(const std::string& path);
// The file's string metadata, in its order.
std::vector<std::pair<std::string, std::string>> load_safetensors_metadata(const std::string& path);

// load_safetensors from memory; `name` stands for the file in errors.
std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name);

}  // namespace weft
