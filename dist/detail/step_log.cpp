#include "dist/detail/step_log.h"

#include "core/error.h"
#include "dist/detail/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weft::dist::detail {

StepLog::StepLog(std::string path) : path_(std::move(path)) {
  open("we");
}

StepLog::StepLog(std::string path, int64_t step) : path_(std::move(path)) {
  const std::string text = read_file(path_).value_or("");
  size_t end = 0;  // of the lines that stay
  for (size_t begin = 0; begin < text.size();) {
    const size_t stop = text.find('\n', begin);
    if (stop == std::string::npos) break;
    const std::string line = text.substr(begin, stop - begin);
    const auto its = step_of_line(line);
    if (!its || *its > step) {
      if (its) cut_ = line;
      break;
    }
    kept_ = line;
    end = begin = stop + 1;
  }
  if (end < text.size()) {
    WEFT_CHECK(truncate(path_.c_str(), static_cast<off_t>(end)) == 0, "run", "expected to cut ",
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
