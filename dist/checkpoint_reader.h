// A checkpoint as it lies in storage: reading any part of any tensor, without the model's code and
// on one process.
#pragma once

#include "core/tensor.h"
#include "dist/manifest.h"

#include <span>
#include <string>
#include <vector>

namespace weft::dist {

class CheckpointReader {
 public:
  // Reads and checks the manifest of the directory `path`. Throws DamagedCheckpoint, and, as all of
  // this does, a StorageError where the storage could not read: that says nothing about the
  // checkpoint.
  explicit CheckpointReader(std::string path, Ref<CheckpointStorage> storage = local_storage());
  // With a manifest that has been read already.
  CheckpointReader(std::string path, Ref<CheckpointStorage> storage, Manifest manifest);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Elements [begin, end) of a tensor, in its stored order, go to `to`.
  struct Request {
    const StoredTensor* tensor = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    std::byte* to = nullptr;
  };
  // Reads them all, by this thread's num_threads(): whole blocks, as they are what a CRC is for,
  // and of their files nothing else. A few files are open at a time, however many ranks have saved.
  // Throws a DamagedCheckpoint that names file and tensor; what `to` points at is then of no use.
  void read(std::span<const Request> requests);
  // A whole tensor, laid out in memory as its model had it.
  Tensor read(const StoredTensor& tensor);
  // Looks at what read() does not: that every `parts`-th file from `part` on is there, has its
  // length, and begins with the header that was saved. Ranks that read tensors in parts look at
  // files in parts. Throws a DamagedCheckpoint that names the file.
  void check_files(int part = 0, int parts = 1);

  // Reads every byte; a line for each damage, naming file and tensor, and none where the checkpoint
  // is whole.
  std::vector<std::string> verify();

 private:
  struct Block;
  Ref<ReadFile> open(size_t file) const;
  void check_header(size_t file) const;
  void read_blocks(std::span<const Block> blocks) const;
  void read_block(const Block& block, std::vector<std::byte>& memory) const;

  std::string path_;
  Ref<CheckpointStorage> storage_;
  Manifest manifest_;
};

}  // namespace weft::dist
