// Lists of names as text: a line each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::data::detail {

// Throws an Error "[op] …" where a name is empty or holds a line feed.
std::string join_names(const char* op, const std::vector<std::string>& names);
// Throws, naming `file` and line, where a line is empty, the last one does not end, or a name comes
// twice.
std::vector<std::string> split_names(const char* op, const std::string& file,
                                     std::string_view text);

// The text without a byte-order mark, and without the carriage returns that end all of its lines.
// Throws, naming `file` and line, where they end only some.
std::string plain_lines(const char* op, const std::string& file, std::string_view text);

}  // namespace weft::data::detail
