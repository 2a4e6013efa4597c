#include "core/error.h"

#include <cstdio>

namespace weft {

Piece::Piece(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  text_ = buffer;
}

Piece::Piece(long long value) : text_(std::to_string(value)) {}
Piece::Piece(unsigned long long value) : text_(std::to_string(value)) {}

std::string concat(std::initializer_list<Piece> pieces) {
  std::string text;
  for (const Piece& piece : pieces)
    text += piece.text();
  return text;
}

void throw_error(std::string_view op, std::initializer_list<Piece> pieces) {
  throw Error(concat({"[", op, "] ", concat(pieces)}));
}

}  // namespace weft
