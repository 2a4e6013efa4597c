// A rank's file of a checkpoint, and the manifest of all ranks' files.
#pragma once

#include "dist/detail/checkpoint_pieces.h"
#include "dist/manifest.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

// What a rank has written: a file, and what lies in it. Every tensor has one interval, whose file
// counts for nothing, and no CRC of its own.
struct FileReport {
  StoredFile file;
  std::vector<StoredTensor> tensors;
};

// "rank-00000-of-00004.safetensors"
std::string rank_file_name(int rank, int ranks);

// Writes the pieces to a new file directory/name and syncs it. A piece that is a whole row-major
// tensor has its shape in the file, any other is a list of elements. Without pieces there is no
// file.
FileReport write_rank_file(CheckpointStorage& storage, const std::string& directory,
                           const std::string& name, const std::vector<Piece>& pieces,
                           int64_t block_bytes, int64_t step);

std::string report_text(const FileReport& report);
FileReport parse_report(const std::string& text);

// Adds files and tensors of all reports to the manifest. Throws where they do not make whole
// tensors.
void merge_reports(Manifest& manifest, std::vector<FileReport> reports);

// Writes and syncs manifest.json.
void write_manifest(CheckpointStorage& storage, const std::string& directory,
                    const Manifest& manifest);

}  // namespace weft::dist::detail
