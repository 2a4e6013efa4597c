#include "data/detail/file_writer.h"

#include "core/error.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace weft::data::detail {

FileWriter::FileWriter(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  for (int attempt = 0; attempt < 100 && file_ < 0; ++attempt) {
    temporary_ = concat({path_, ".", getpid(), ".", attempt, ".tmp"});
    file_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) break;
  }
  check(file_ >= 0, "expected to create a file in its folder");
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

void FileWriter::check(bool held, const char* what) const {
  WEFT_CHECK(held, op_, path_, ": ", what, ", got: ", std::strerror(errno));
}

void FileWriter::write(const void* bytes, size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(file_, at, count);
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, "expected to write");
    at += written;
    count -= static_cast<size_t>(written);
  }
}

void FileWriter::write_at(const void* bytes, size_t count, size_t offset) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = pwrite(file_, at, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, "expected to write");
    at += written;
    offset += static_cast<size_t>(written);
    count -= static_cast<size_t>(written);
  }
}

void FileWriter::commit() {
  check(fsync(file_) == 0, "expected to sync");
  check(rename(temporary_.c_str(), path_.c_str()) == 0, "expected to rename it into place");
  close(std::exchange(file_, -1));
  // The rename itself is to outlive a crash.
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int handle = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(handle >= 0, "expected to open its folder");
  const bool synced = fsync(handle) == 0 || errno == EINVAL;  // some file systems cannot
  close(handle);
  check(synced, "expected to sync its folder");
}

}  // namespace weft::data::detail
