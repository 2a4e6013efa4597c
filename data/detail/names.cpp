#include "data/detail/names.h"

#include "core/error.h"

#include <algorithm>
#include <unordered_set>

namespace weft::data::detail {

std::string join_names(const char* op, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    WEFT_CHECK(!name.empty() && name.find('\n') == std::string::npos, op,
               "expected names without a line feed, got '", name, "'");
    text += name + "\n";
  }
  return text;
}

std::vector<std::string> split_names(const char* op, const std::string& file,
                                     std::string_view text) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const bool sound = end != std::string_view::npos && end > 0;
    WEFT_CHECK(sound, op, file, " line ", names.size() + 1,
               ": expected a name and a line feed, got ", end == 0 ? "none" : "the end");
    const std::string_view name = text.substr(0, end);
    WEFT_CHECK(seen.insert(name).second, op, file, " line ", names.size() + 1,
               ": expected different names, got '", name, "' again");
    names.emplace_back(name);
    text.remove_prefix(end + 1);
  }
  return names;
}

std::string plain_lines(const char* op, const std::string& file, std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string plain;
  plain.reserve(text.size());
  int64_t lines = 0;
  int64_t returns = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    ++lines;
    if (line.ends_with('\r')) {
      ++returns;
      line.remove_suffix(1);
    }
    WEFT_CHECK(returns == 0 || returns == lines, op, file, " line ", lines,
               ": expected a carriage return at the end of every line or of none, got ", returns,
               " in ", lines, " lines");
    plain += line;
    if (end < text.size()) plain += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return plain;
}

}  // namespace weft::data::detail
