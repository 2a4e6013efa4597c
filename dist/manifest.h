// manifest.json: what a checkpoint holds, where it lies, and how to know that it is whole.
//
//   {"format":"weft checkpoint","version":1,"step":42,…,"digest":"…",
//    "files":[{"name":"rank-00000-of-00004.safetensors","bytes":…,"head_bytes":…,"head_crc32c":"…"},
//    …], "tensors":[{"name":"model.fc1.weight","dtype":"f32","shape":[33,20],"crc32c":"…",
//      "intervals":[{"begin":0,"end":330,"file":0,"offset":128,"crc32c":["…", …]}, …]}, …]
//   ,"crc32c":"…"}
//
// A tensor's values are numbered in row-major order, or, if it says "order", in that of its dims
// from the slowest to the fastest: as its model has them in memory. Intervals [begin, end) of these
// numbers lie in files; each has a CRC32C for every `block_bytes` of it. A tensor's own is that of
// all its bytes, whatever the intervals; the digest is made of these. The last line is the CRC32C
// of the text before it.
//
// Names: "model.NAME" for parameters and buffers, "optimizer.STATE.NAME", "ema.NAME" for moving
// averages, "tensors.NAME" for what an app has added.
#pragma once

#include "core/dtype.h"
#include "core/shape.h"
#include "dist/storage.h"
#include "dist/training_progress.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::dist {

// A checkpoint that does not hold what its manifest says, or whose manifest is damaged. The text
// names file and tensor.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

struct StoredInterval {
  int64_t begin = 0;  // elements
  int64_t end = 0;
  int file = 0;
  int64_t offset = 0;  // bytes from the file's beginning
  std::vector<uint32_t> crcs = {};
};

struct StoredTensor {
  std::string name;
  DType dtype = f32;
  Shape shape;
  std::vector<int> order = {};  // empty: row-major
  uint32_t crc = 0;
  std::vector<StoredInterval> intervals = {};  // in their order, from 0 to the number of elements

  int64_t numel() const { return shape.numel(); }
};

struct StoredFile {
  std::string name;
  int64_t bytes = 0;
  int64_t head_bytes = 0;  // before the first tensor
  uint32_t head_crc = 0;
};

struct Manifest {
  TrainingProgress progress;
  uint64_t seed = 0;
  std::optional<int64_t> schedule = {};  // position of an optim::Scheduler
  std::string strategy;
  int ranks = 0;
  int64_t block_bytes = 0;
  // Further names of tied tensors: (name, first name), as "model.NAME".
  std::vector<std::pair<std::string, std::string>> aliases = {};
  std::vector<StoredFile> files = {};
  std::vector<StoredTensor> tensors = {};  // by name

  // Null where there is none; further names of tied tensors are known, too.
  const StoredTensor* find(std::string_view name) const;
  // 16 hex digits: of progress (but for notes), seed, schedule, aliases, and all tensors' names,
  // dtypes, shapes, orders and CRCs.
  std::string digest() const;
  // Of all files but the manifest.
  int64_t bytes() const;
};

std::string manifest_text(const Manifest& manifest);

// Everything is checked: the CRC, the digest, that files and intervals fit each other without gap
// or overlap. What is wrong throws a DamagedCheckpoint naming `path`.
Manifest parse_manifest(std::string_view text, const std::string& path);
// The same of a text without its last line, for fuzzers, which do not find the CRC.
Manifest parse_manifest_body(std::string_view body, const std::string& path);

// The text of a checkpoint's manifest; the manifest. One that is not there is damage; what keeps
// the storage from reading it is a StorageError.
std::string read_manifest_text(CheckpointStorage& storage, const std::string& checkpoint);
Manifest read_manifest(CheckpointStorage& storage, const std::string& checkpoint);

}  // namespace weft::dist
