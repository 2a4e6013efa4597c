// JSON: values that are read and written, and a parser's events for those who need no values.
//
// nlohmann/json does the work, in json.cpp alone: included everywhere, its templates would cost
// each source ten seconds of compiling.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

// A value. Objects keep the order in which their members came. What is asked of a value of another
// kind throws weft::Error, as does a number that the type asked for cannot hold.
class Json {
 public:
  enum class Kind { null, logical, integer, natural, real, text, array, object };

  Json(std::nullptr_t = nullptr) {}
  Json(bool value) : kind_(Kind::logical), number_{.integer = value ? 1 : 0} {}
  // `natural` is the kind of what only a uint64_t holds.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value)
      : kind_(Kind::integer), number_{.integer = static_cast<int64_t>(value)} {
    if constexpr (std::unsigned_integral<T>) {
      if (static_cast<uint64_t>(value) > uint64_t{INT64_MAX}) kind_ = Kind::natural;
    }
  }
  // JSON has no infinity and no NaN: they are written as null.
  Json(double value) : kind_(Kind::real), number_{.real = value} {}
  Json(std::string text) : kind_(Kind::text), text_(std::move(text)) {}
  Json(std::string_view text) : Json(std::string(text)) {}
  Json(const char* text) : Json(std::string(text)) {}
  template <class T>
  Json(const std::vector<T>& list) : kind_(Kind::array), elements_(list.begin(), list.end()) {}

  static Json array(std::initializer_list<Json> elements = {});
  static Json object(std::initializer_list<std::pair<std::string_view, Json>> members = {});

  // Throws weft::Error with the byte at which the text, UTF-8, ceases to be JSON. A name that
  // stands twice in one object and values nested deeper than 256 are refused too.
  static Json parse(std::string_view text);
  // Nothing where that would throw.
  static std::optional<Json> try_parse(std::string_view text);
  // In one line, or with `indent` spaces a level in many. Throws weft::Error when a text is not
  // UTF-8.
  std::string dump(int indent = -1) const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  bool is_text() const { return kind_ == Kind::text; }
  bool is_array() const { return kind_ == Kind::array; }
  bool is_object() const { return kind_ == Kind::object; }
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::natural; }
  bool is_number() const { return is_integer() || kind_ == Kind::real; }

  // bool, an integer, float or double, std::string, or a std::vector of one of them.
  template <class T>
  T get() const {
    if constexpr (std::same_as<T, bool>) {
      return boolean();
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<T>(natural(static_cast<T>(-1)));
    } else if constexpr (std::signed_integral<T>) {
      constexpr auto most = static_cast<int64_t>(static_cast<std::make_unsigned_t<T>>(-1) >> 1);
      return static_cast<T>(integer(-most - 1, most));
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(real());
    } else if constexpr (std::same_as<T, std::string>) {
      return text();
    } else {
      T list;
      for (const Json& element : elements())
        list.push_back(element.get<typename T::value_type>());
      return list;
    }
  }
  const std::string& text() const;

  // Of an array or an object.
  size_t size() const { return elements_.size(); }
  const std::vector<Json>& elements() const;
  void push_back(Json element);  // makes null an array
  const Json& at(size_t index) const;

  struct Member {
    const std::string& name;
    const Json& value;
  };
  std::vector<Member> members() const;
  Json& operator[](
      std::string_view name);  // makes null an object, and the member where there is none
  // Appends a member; the caller knows that its name is a new one.
  Json& append(std::string name, Json value);
  const Json* find(std::string_view name) const;  // null: no such member, or no object
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;

  // Numbers are equal by value, objects whatever the order of their members.
  friend bool operator==(const Json& a, const Json& b);

 private:
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  uint64_t natural(uint64_t most) const;
  double real() const;

  Kind kind_ = Kind::null;
  union {
    int64_t integer;  // a uint64_t's bits when natural
    double real;
  } number_ = {.integer = 0};
  std::string text_;
  std::vector<Json> elements_;
  std::vector<std::string> names_;  // of an object's elements
};

// What a parser meets, in the order of the text.
class JsonEvents {
 public:
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(int64_t value) = 0;   // below 0
  virtual void natural(uint64_t value) = 0;  // from 0 on
  virtual void real(double value, std::string_view text) = 0;
  virtual void string(std::string value) = 0;
  virtual void begin_object() = 0;
  virtual void key(std::string name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  // The text is no JSON from this byte on. When it returns, parsing ends.
  virtual void damage(size_t byte) = 0;

 protected:
  JsonEvents() = default;
  JsonEvents(const JsonEvents&) = default;
  JsonEvents& operator=(const JsonEvents&) = default;
  ~JsonEvents() = default;
};
void parse_json(std::string_view text, JsonEvents& events);

}  // namespace weft
