// Errors and the one check macro.
//
// Users of Weft see one exception type, weft::Error, whose text reads
//   [op] expected …, got …
// Bad input throws before anything is changed, so what the caller holds stays valid.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One piece of a message. Types of the framework (Shape, DType, …) become pieces by a `to_string`
// found beside them; formatting stays out of line so that a check costs a compare and a jump.
class Piece {
 public:
  Piece(const char* text) : text_(text) {}
  Piece(std::string_view text) : text_(text) {}
  Piece(const std::string& text) : text_(text) {}
  Piece(bool value) : text_(value ? "true" : "false") {}
  Piece(double value);
  Piece(long long value);
  Piece(unsigned long long value);
  Piece(int value) : Piece(static_cast<long long>(value)) {}
  Piece(unsigned value) : Piece(static_cast<unsigned long long>(value)) {}
  Piece(long value) : Piece(static_cast<long long>(value)) {}
  Piece(unsigned long value) : Piece(static_cast<unsigned long long>(value)) {}
  template <class T>
  requires requires(const T& value) { to_string(value); }
  Piece(const T& value) : text_(to_string(value)) {}

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string concat(std::initializer_list<Piece> pieces);

[[noreturn]] void throw_error(std::string_view op, std::initializer_list<Piece> pieces);

}  // namespace weft

// WEFT_CHECK(condition, "op", pieces...) throws weft::Error "[op] pieces" when the condition is
// false.
#define WEFT_CHECK(condition, op, ...)        \
  do {                                        \
    if (!(condition)) [[unlikely]]            \
      ::weft::throw_error(op, {__VA_ARGS__}); \
  } while (false)
