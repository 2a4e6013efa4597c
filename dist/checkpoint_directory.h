// The checkpoints of a run: which there are, which to keep.
//
//   RUN/checkpoints/step-00000040/                    whole: it got this name by the last rename
//   RUN/checkpoints/.step-00000042.<token>.partial/   being written, or left by a save that died
//   RUN/checkpoints/step-00000041.damaged/            was passed over: kept until somebody removes
//   it RUN/checkpoints/pinned                            names that are never removed, one a line
//
// One process at a time changes a directory; any number may read it.
#pragma once

#include "dist/storage.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::dist {

struct StoredCheckpoint {
  std::string name;  // "step-00000042"
  std::string path;
  int64_t step = 0;
};

// Which checkpoints stay: the union of both. Pinned ones stay in any case.
struct CheckpointKeep {
  int64_t last = 3;  // the newest; 0: all
  int64_t best = 1;  // by TrainingProgress::metric; those without one do not count
  bool higher_is_better = false;
};

// "step-00000042"
std::string checkpoint_name(int64_t step);

class CheckpointDirectory {
 public:
  explicit CheckpointDirectory(std::string path, Ref<CheckpointStorage> storage = local_storage());

  const std::string& path() const { return path_; }

  // By step, oldest first. A directory that is not there has none.
  std::vector<StoredCheckpoint> list() const;
  // The newest, without a look inside: Checkpointer::resume() finds the newest that is whole.
  std::optional<StoredCheckpoint> latest() const;
  // The one with the best metric, the newer of equals; those whose manifest is damaged do not
  // count. Throws a StorageError where one could not be read.
  std::optional<StoredCheckpoint> best(bool higher_is_better = false) const;

  // A pinned checkpoint is never removed by thin(): what a result points at. Survives the process.
  // Throws where there is no such checkpoint.
  void pin(const std::string& name);
  void unpin(const std::string& name);
  std::vector<std::string> pinned() const;

  // Removes what `keep` does not keep; returns the names of what went. A checkpoint that cannot be
  // removed keeps no other from going; then the first error is thrown.
  std::vector<std::string> thin(const CheckpointKeep& keep);
  // Takes a checkpoint out of the list, by one rename, so that none is ever there by halves;
  // returns where it now is. clean() removes it.
  std::string retire(const StoredCheckpoint& stored);
  // Out of the list, too, and to be kept: as step-N.damaged, or step-N.damaged.2 and so on where
  // there is one already. Returns where it now is.
  std::string set_aside(const StoredCheckpoint& stored);
  // Removes what saves and removals that died have left, and puts back what a save that died was
  // about to replace; errors as of thin(). Not while a save is under way.
  void clean();

 private:
  // Those with a metric, the best first.
  std::vector<StoredCheckpoint> by_metric(bool higher_is_better) const;
  void write_pinned(const std::vector<std::string>& names);

  std::string path_;
  Ref<CheckpointStorage> storage_;
};

}  // namespace weft::dist
