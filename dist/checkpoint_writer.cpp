#include "dist/checkpoint_writer.h"

#include "dist/checkpoint_directory.h"
#include "dist/detail/checkpoint_write.h"

#include <unistd.h>

#include <algorithm>

namespace weft::dist {

std::string write_checkpoint(CheckpointStorage& storage, const std::string& directory,
                             Manifest manifest, const std::vector<NamedTensor>& tensors) {
  const std::string name = checkpoint_name(manifest.progress.step);
  const std::string path = directory + "/" + name;
  const auto there = storage.list(directory);
  WEFT_CHECK(!std::binary_search(there.begin(), there.end(), name), "checkpoint",
             "expected a checkpoint that is not there yet, got ", path);
  if (manifest.block_bytes == 0) manifest.block_bytes = int64_t{1} << 20;
  manifest.ranks = 1;
  std::vector<detail::Piece> pieces;
  for (const auto& [tensor_name, tensor] : tensors)
    pieces.push_back(detail::piece_of(tensor_name, tensor, 0, 1));
  const std::string temporary =
      concat({directory, "/.", name, ".", static_cast<int>(getpid()), ".partial"});
  storage.make_directory(temporary);
  try {
    std::vector<detail::FileReport> reports;
    reports.push_back(detail::write_rank_file(storage, temporary, detail::rank_file_name(0, 1),
                                              pieces, manifest.block_bytes,
                                              manifest.progress.step));
    detail::merge_reports(manifest, std::move(reports));
    detail::write_manifest(storage, temporary, manifest);
    storage.sync_directory(temporary);
    storage.rename(temporary, path);
  } catch (const Error&) {
    try {
      remove_tree(storage, temporary);
    } catch (const Error&) {  // the first error is the one to tell
    }
    throw;
  }
  storage.sync_directory(directory);
  return path;
}

}  // namespace weft::dist
