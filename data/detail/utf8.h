// UTF-8 (RFC 3629).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::data::detail {

// The code points. Throws an Error naming `name` and the byte offset where the text is not UTF-8:
// overlong forms, surrogates and what lies past U+10FFFF included.
std::vector<char32_t> decode_utf8(std::string_view text, const std::string& name);

// Expects a code point that decode_utf8 could give.
std::string encode_utf8(char32_t point);

}  // namespace weft::data::detail
