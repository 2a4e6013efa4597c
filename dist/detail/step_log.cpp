#include "dist/detail/step_log.h"

#include "core/error.h"
#include "dist/detail/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weft::dist::detail {
namespace {

// Where a file's lines of steps up to `step` end.
struct Cut {
  size_t end = 0;
  std::string kept;   // the last of them
  std::string after;  // the line behind them, if it is a step's
};

Cut cut_behind(const std::string& text, int64_t step) {
  Cut cut;
  for (;;) {
    const size_t stop = text.find('\n', cut.end);
    if (stop == std::string::npos) return cut;
    const std::string line = text.substr(cut.end, stop - cut.end);
    const auto its = step_of_line(line);
    if (!its || *its > step) {
      if (its) cut.after = line;
      return cut;
    }
    cut.kept = line;
    cut.end = stop + 1;
  }
}

}  // namespace

StepLog::StepLog(std::string path) : path_(std::move(path)) {
  open("we");
}

StepLog::StepLog(std::string path, int64_t step) : path_(std::move(path)) {
  const std::string text = read_file(path_).value_or("");
  const Cut cut = cut_behind(text, step);
  kept_ = cut.kept;
  if (cut.end < text.size()) {
    WEFT_CHECK(truncate(path_.c_str(), static_cast<off_t>(cut.end)) == 0, "run", "expected to cut ",
               path_, " back to step ", step, ", got ", std::strerror(errno));
  }
  open("ae");
}

StepLog::~StepLog() {
  if (file_) std::fclose(file_);
}

void StepLog::open(const char* mode) {
  file_ = std::fopen(path_.c_str(), mode);
  WEFT_CHECK(file_, "run", "expected to write ", path_, ", got ", std::strerror(errno));
}

void StepLog::add(const std::string& line) {
  const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size() &&
                       std::fputc('\n', file_) == '\n' && std::fflush(file_) == 0;
  WEFT_CHECK(written, "run", "expected to write ", path_, ", got ", std::strerror(errno));
}

std::string line_after(const std::string& path, int64_t step) {
  return cut_behind(read_file(path).value_or(""), step).after;
}

std::optional<int64_t> step_of_line(const std::string& line) {
  long long step = 0;
  int length = 0;
  if (std::sscanf(line.c_str(), "{\"step\":%lld%n", &step, &length) != 1 || line.back() != '}')
    return std::nullopt;
  return step;
}

std::string member_of_line(const std::string& line, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  const size_t at = line.find(key);
  if (at == std::string::npos) return {};
  size_t begin = at + key.size();
  if (begin < line.size() && line[begin] == '"') {
    ++begin;
    return line.substr(begin, std::min(line.find('"', begin), line.size()) - begin);
  }
  return line.substr(begin, std::min(line.find_first_of(",}", begin), line.size()) - begin);
}

std::string quoted_json(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

}  // namespace weft::dist::detail
