// A checkpoint written by one process, without a model: what tools and converters need. Training
// saves by dist::Checkpointer.
#pragma once

#include "core/safetensors.h"
#include "dist/manifest.h"

#include <string>
#include <vector>

namespace weft::dist {

// Writes the tensors (dense, under the names dist/manifest.h describes) as the checkpoint
// `directory`/step-N of the manifest's step; its progress, seed, schedule and aliases are the
// manifest's. Whole or not at all; one that is there is not replaced but an error. Returns its
// path.
std::string write_checkpoint(CheckpointStorage& storage, const std::string& directory,
                             Manifest manifest, const std::vector<NamedTensor>& tensors);

}  // namespace weft::dist
