// The folder of a run, for the process that runs it: locked while it does, an attempt's files apart
// from another's.
//
//   RUN/attempts/3/logs/rank-0.log, attempt.json     of the third attempt
//   RUN/logs -> attempts/3/logs                      of the newest
//   RUN/checkpoints/                                 dist/checkpoint_directory.h
//   RUN/metrics.jsonl, reports.jsonl                 a line a step, a line a report
//   RUN/run.json, first_loss.json                    what losses depend on (detail/first_loss.h)
//   RUN/places                                       written by others: ranks that may run now
#pragma once

#include "dist/detail/file_descriptor.h"

#include <cstdint>
#include <optional>
#include <string>

namespace weft::dist::detail {

class RunFolder {
 public:
  // Makes the folder and locks it, until this process and all that it has started have ended. Waits
  // a moment for a run that is just ending. Throws Error: in use, or cannot be written.
  explicit RunFolder(const std::string& path);

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  bool has_checkpoints() const;
  // Whether a run has come to its end here.
  bool finished() const;

  // Removes what runs have made: all of the above but for `places`, and result.json.
  void clear() const;

  // 0 before the first.
  int64_t last_attempt() const;
  // Makes the folders of an attempt and lets `logs` point there; returns attempts/N.
  std::string begin_attempt(int64_t attempt) const;
  // Writes attempts/N/attempt.json, whole.
  void write_attempt(int64_t attempt, const std::string& json) const;

 private:
  void clear_logs() const;

  std::string path_;
  FileDescriptor lock_;
};

// What the file RUN/places holds: a number of ranks; nothing where there is no file. Throws Error
// for what is no number.
std::optional<int> read_places(const std::string& run);
void write_places(const std::string& run, int places);

// Writes a file under a temporary name and renames it. Throws Error.
void write_file_whole(const std::string& path, const std::string& text);
std::optional<std::string> read_file(const std::string& path);

}  // namespace weft::dist::detail
