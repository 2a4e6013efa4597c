#include "data/detail/names.h"

#include "core/error.h"

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

}  // namespace weft::data::detail
