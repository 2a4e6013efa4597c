#include "core/json.h"

#include "core/error.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace weft {
namespace {

using Library = nlohmann::ordered_json;

constexpr size_t kDeepest = 256;

constexpr const char* kKinds[] = {"null",   "a boolean", "an integer", "an integer",
                                  "a real", "a text",    "an array",   "an object"};

[[noreturn]] void unexpected(const char* expected, const Json& got) {
  throw_error("json", {"expected ", expected, ", got ", kKinds[static_cast<size_t>(got.kind())]});
}

// The library's events, as ours.
class Forwarder final : public nlohmann::json_sax<Library> {
 public:
  explicit Forwarder(JsonEvents& events) : events_(events) {}

  bool null() override { return events_.null(), true; }
  bool boolean(bool value) override { return events_.boolean(value), true; }
  bool number_integer(number_integer_t value) override { return events_.integer(value), true; }
  bool number_unsigned(number_unsigned_t value) override { return events_.natural(value), true; }
  bool number_float(number_float_t value, const string_t& text) override {
    return events_.real(value, text), true;
  }
  bool string(string_t& value) override { return events_.string(std::move(value)), true; }
  bool binary(binary_t&) override { return false; }  // no JSON text holds any
  bool start_object(size_t) override { return events_.begin_object(), true; }
  bool key(string_t& name) override { return events_.key(std::move(name)), true; }
  bool end_object() override { return events_.end_object(), true; }
  bool start_array(size_t) override { return events_.begin_array(), true; }
  bool end_array() override { return events_.end_array(), true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    events_.damage(position);
    return false;
  }

 private:
  JsonEvents& events_;
};

// Makes a value of the events.
class Builder final : public JsonEvents {
 public:
  void null() override { add({}); }
  void boolean(bool value) override { add(value); }
  void integer(int64_t value) override { add(value); }
  void natural(uint64_t value) override { add(value); }
  void real(double value, std::string_view) override { add(value); }
  void string(std::string value) override { add(std::move(value)); }
  void begin_object() override { open(Json::object()); }
  void key(std::string name) override { names_.back() = std::move(name); }
  void end_object() override { close(); }
  void begin_array() override { open(Json::array()); }
  void end_array() override { close(); }
  void damage(size_t byte) override {
    throw_error("json", {"expected JSON in UTF-8, got damage at byte ", byte});
  }

  Json take() { return std::move(root_); }

 private:
  void open(Json value) {
    if (open_.size() == kDeepest)
      throw_error("json", {"expected values nested at most ", kDeepest, " deep, got more"});
    open_.push_back(std::move(value));
    names_.emplace_back();
  }
  void close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    names_.pop_back();
    if (value.is_object()) check_names(value);
    add(std::move(value));
  }
  void add(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().is_array())
      open_.back().push_back(std::move(value));
    else
      open_.back().append(std::move(names_.back()), std::move(value));
  }
  static void check_names(const Json& object) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : object.members())
      names.push_back(name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw_error("json", {"expected each name once, got '", twice->substr(0, 100), "' twice"});
  }

  Json root_;
  std::vector<Json> open_;          // the values that the next event is inside of
  std::vector<std::string> names_;  // of the next member of each
};

Library library_of(const Json& json) {
  switch (json.kind()) {
    case Json::Kind::null:
      return nullptr;
    case Json::Kind::logical:
      return json.get<bool>();
    case Json::Kind::integer:
      return json.get<int64_t>();
    case Json::Kind::natural:
      return json.get<uint64_t>();
    case Json::Kind::real:
      return json.get<double>();
    case Json::Kind::text:
      return json.text();
    case Json::Kind::array: {
      Library array = Library::array();
      for (const Json& element : json.elements())
        array.push_back(library_of(element));
      return array;
    }
    case Json::Kind::object:
      break;
  }
  Library object = Library::object();
  for (const auto& [name, value] : json.members())
    object[name] = library_of(value);
  return object;
}

}  // namespace

void parse_json(std::string_view text, JsonEvents& events) {
  Forwarder forwarder(events);
  Library::sax_parse(text.begin(), text.end(), &forwarder);
}

Json Json::array(std::initializer_list<Json> elements) {
  Json json;
  json.kind_ = Kind::array;
  json.elements_ = elements;
  return json;
}

Json Json::object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  Json json;
  json.kind_ = Kind::object;
  for (const auto& [name, value] : members)
    json[name] = value;
  return json;
}

Json Json::parse(std::string_view text) {
  Builder builder;
  parse_json(text, builder);
  return builder.take();
}

std::optional<Json> Json::try_parse(std::string_view text) {
  try {
    return parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string Json::dump(int indent) const {
  try {
    return library_of(*this).dump(indent);
  } catch (const Library::exception&) {
    throw_error("json", {"expected texts in UTF-8, got other bytes"});
  }
}

bool Json::boolean() const {
  if (kind_ != Kind::logical) unexpected("a boolean", *this);
  return number_.integer != 0;
}

int64_t Json::integer(int64_t least, int64_t most) const {
  if (!is_integer()) unexpected("an integer", *this);
  const bool fits = kind_ == Kind::integer && number_.integer >= least && number_.integer <= most;
  WEFT_CHECK(fits, "json", "expected an integer of ", least, " to ", most, ", got ", dump());
  return number_.integer;
}

uint64_t Json::natural(uint64_t most) const {
  if (!is_integer()) unexpected("an integer", *this);
  const auto value = static_cast<uint64_t>(number_.integer);
  const bool fits = (kind_ == Kind::natural || number_.integer >= 0) && value <= most;
  WEFT_CHECK(fits, "json", "expected an integer of 0 to ", most, ", got ", dump());
  return value;
}

double Json::real() const {
  if (!is_number()) unexpected("a number", *this);
  if (kind_ == Kind::real) return number_.real;
  return kind_ == Kind::integer ? static_cast<double>(number_.integer)
                                : static_cast<double>(static_cast<uint64_t>(number_.integer));
}

const std::string& Json::text() const {
  if (kind_ != Kind::text) unexpected("a text", *this);
  return text_;
}

const std::vector<Json>& Json::elements() const {
  if (kind_ != Kind::array) unexpected("an array", *this);
  return elements_;
}

void Json::push_back(Json element) {
  if (is_null()) kind_ = Kind::array;
  if (kind_ != Kind::array) unexpected("an array", *this);
  elements_.push_back(std::move(element));
}

const Json& Json::at(size_t index) const {
  WEFT_CHECK(index < elements().size(), "json", "expected an array of more than ", index,
             " elements, got ", size());
  return elements_[index];
}

std::vector<Json::Member> Json::members() const {
  if (kind_ != Kind::object) unexpected("an object", *this);
  std::vector<Member> members;
  members.reserve(size());
  for (size_t i = 0; i < size(); ++i)
    members.push_back({names_[i], elements_[i]});
  return members;
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) kind_ = Kind::object;
  if (kind_ != Kind::object) unexpected("an object", *this);
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return elements_[static_cast<size_t>(found - names_.begin())];
  return append(std::string(name), {});
}

Json& Json::append(std::string name, Json value) {
  names_.push_back(std::move(name));
  return elements_.emplace_back(std::move(value));
}

const Json* Json::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? nullptr : &elements_[static_cast<size_t>(found - names_.begin())];
}

const Json& Json::at(std::string_view name) const {
  if (kind_ != Kind::object) unexpected("an object", *this);
  const Json* found = find(name);
  WEFT_CHECK(found, "json", "expected a member '", name, "', got none");
  return *found;
}

bool operator==(const Json& a, const Json& b) {
  if (a.kind_ != b.kind_) return a.is_number() && b.is_number() && a.real() == b.real();
  switch (a.kind_) {
    case Json::Kind::null:
      return true;
    case Json::Kind::real:
      return a.number_.real == b.number_.real;
    case Json::Kind::text:
      return a.text_ == b.text_;
    case Json::Kind::array:
      return a.elements_ == b.elements_;
    case Json::Kind::object:
      return a.size() == b.size() && std::ranges::all_of(a.members(), [&](const auto& member) {
               const Json* other = b.find(member.name);
               return other && *other == member.value;
             });
    case Json::Kind::logical:
    case Json::Kind::integer:
    case Json::Kind::natural:
      break;
  }
  return a.number_.integer == b.number_.integer;
}

}  // namespace weft
