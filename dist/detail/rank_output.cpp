#include "dist/detail/rank_output.h"

#include "core/error.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::dist::detail {
namespace {

constexpr size_t kTail = 16 * 1024;
constexpr size_t kLongestPartial = 64 * 1024;  // a line that long is passed on in parts

// What is left of a line after returns to its beginning, without the mark that clears it.
std::string last_seen(const std::string& line) {
  constexpr std::string_view kClear = "\033[K";
  const size_t end = line.find_last_not_of("\r\n");
  const size_t back = end == std::string::npos ? end : line.rfind('\r', end);
  if (back == std::string::npos) return line;
  const size_t begin = back + 1;
  return line.substr(line.compare(begin, kClear.size(), kClear) == 0 ? begin + kClear.size()
                                                                     : begin);
}

}  // namespace

void Outlet::add(std::string_view bytes) {
  if (!broken_) bytes_ += bytes;
}

void Outlet::write_some() {
  while (waiting()) {
    // A ready pipe takes so much at once, so that a blocking descriptor does not block.
    const size_t size = std::min<size_t>(bytes_.size(), PIPE_BUF);
    const ssize_t written = write(descriptor_, bytes_.data(), size);
    if (written > 0) {
      bytes_.erase(0, static_cast<size_t>(written));
      return;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    drop();
  }
}

void Outlet::drop() {
  broken_ = true;
  bytes_.clear();
}

RankLog::RankLog(std::string path) : path_(std::move(path)) {
  file_ = FileDescriptor(
      open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  WEFT_CHECK(file_.valid(), "launch", "expected to write ", path_, ", got ", std::strerror(errno));
}

void RankLog::add(size_t stream, std::string_view bytes) {
  std::string& partial = partial_[stream];
  for (size_t end = 0; (end = bytes.find('\n')) != std::string_view::npos;) {
    partial += bytes.substr(0, end + 1);
    write(last_seen(partial));
    partial.clear();
    bytes.remove_prefix(end + 1);
  }
  partial += bytes;
  if (partial.size() > kLongestPartial) flush();
}

void RankLog::flush() {
  for (std::string& partial : partial_) {
    write(last_seen(partial));
    partial.clear();
  }
}

void RankLog::write(const std::string& line) {
  tail_ += line;
  if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    WEFT_CHECK(written > 0, "launch", "expected to write ", path_, ", got ", std::strerror(errno));
    done += static_cast<size_t>(written);
  }
}

std::string RankLog::last_lines(int count) const {
  size_t end = tail_.size();
  while (end > 0 && (tail_[end - 1] == '\n' || tail_[end - 1] == '\r'))
    --end;
  if (end == 0) return {};
  size_t begin = end;
  while (begin > 0 && (tail_[begin - 1] != '\n' || --count > 0))
    --begin;
  return tail_.substr(begin, end - begin) + "\n";
}

std::string LineMarker::add(std::string_view bytes) {
  std::string lines;
  for (;;) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) break;
    lines += mark_ + partial_;
    lines += bytes.substr(0, end + 1);
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
  partial_ += bytes;
  if (partial_.size() > kLongestPartial) lines += rest();
  return lines;
}

std::string LineMarker::rest() {
  if (partial_.empty()) return {};
  std::string line = mark_ + partial_ + "\n";
  partial_.clear();
  return line;
}

}  // namespace weft::dist::detail
