// Where the ranks' output goes: a log a rank, and what is shown.
#pragma once

#include "dist/detail/file_descriptor.h"

#include <string>
#include <string_view>

namespace weft::dist::detail {

// Bytes on their way to a descriptor that may be slower than its writers: a terminal, a pager.
class Outlet {
 public:
  explicit Outlet(int descriptor) : descriptor_(descriptor) {}
  int descriptor() const { return descriptor_; }
  void add(std::string_view bytes);
  bool waiting() const { return !bytes_.empty(); }
  // Writers should wait.
  bool full() const { return bytes_.size() > kFull; }
  // Writes what goes without waiting long: to be called when the descriptor is ready. When nobody
  // reads any more, the bytes are dropped, now and later.
  void write_some();
  void drop();

 private:
  static constexpr size_t kFull = 256 * 1024;
  int descriptor_;  // not owned
  bool broken_ = false;
  std::string bytes_;
};

// The log of one rank, line by line, and its last lines. Of a line that was written over (a
// progress bar), the log keeps what was to be seen last.
class RankLog {
 public:
  // Begins the file anew. Others may append to it meanwhile. Throws Error.
  explicit RankLog(std::string path);
  // Bytes of one of the rank's streams, 0 or 1; lines of the two are not mixed.
  void add(size_t stream, std::string_view bytes);
  // Lines that have no end yet.
  void flush();
  const std::string& path() const { return path_; }
  // At most `count`, each with its end of line.
  std::string last_lines(int count) const;

 private:
  void write(const std::string& line);

  std::string path_;
  FileDescriptor file_;
  std::string partial_[2];
  std::string tail_;
};

// Puts a mark before every line of a stream that arrives in pieces.
class LineMarker {
 public:
  explicit LineMarker(std::string mark) : mark_(std::move(mark)) {}
  // The whole lines among what has come so far.
  std::string add(std::string_view bytes);
  // What is left, ended.
  std::string rest();

 private:
  std::string mark_;
  std::string partial_;
};

}  // namespace weft::dist::detail
