#include "core/detail/safetensors_header.h"

#include "core/json.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace weft::detail {
namespace {

constexpr const char* kLoad = "load_safetensors";
constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kDataAlignment = 64;

// In the order of DType.
constexpr std::array<std::string_view, 8> kNames = {"BOOL", "U8",   "I32", "I64",
                                                    "F16",  "BF16", "F32", "F64"};

// Text from a file as part of a message: damage can be long.
std::string excerpt(std::string_view text) {
  constexpr size_t longest = 100;
  return text.size() <= longest ? concat({"'", text, "'"})
                                : concat({"'", text.substr(0, longest), "…'"});
}

// Builds the header from the parser's events. Unlike a parsed document this sees names that stand
// twice, needs no memory for what is refused anyway, and stops at the first thing out of place.
class HeaderReader final : public JsonEvents {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  void null() override { unexpected("null"); }
  void boolean(bool) override { unexpected("a bool"); }
  void integer(int64_t) override { unexpected("a negative number"); }
  void real(double, std::string_view text) override { unexpected(text); }

  void natural(uint64_t value) override {
    if (value > uint64_t{INT64_MAX}) unexpected(std::to_string(value));
    const auto number = static_cast<int64_t>(value);
    if (at_ == At::shape) {
      if (entry_.shape.dims() == kMaxDims)
        fail({"expected a shape of at most ", kMaxDims, " dims, got more"});
      entry_.shape.push_back(number);
    } else if (at_ == At::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry_.begin : entry_.end) = number;
    } else {
      unexpected(std::to_string(value));
    }
  }

  void string(std::string value) override {
    if (at_ == At::metadata) {
      header_.metadata.emplace_back(key_, value);
    } else if (at_ == At::tensor && key_ == "dtype") {
      const auto found = std::find(kNames.begin(), kNames.end(), value);
      if (found == kNames.end()) {
        fail({"expected a dtype of BOOL U8 I32 I64 F16 BF16 F32 F64, got ", excerpt(value)});
      }
      entry_.dtype = static_cast<DType>(found - kNames.begin());
    } else {
      unexpected(excerpt(value));
    }
  }

  void begin_object() override {
    if (at_ == At::outside) {
      at_ = At::header;
    } else if (at_ == At::header) {
      at_ = key_ == kMetadata ? At::metadata : At::tensor;
      seen_ = 0;
      entry_ = {};
      entry_.name = key_;
    } else {
      unexpected("an object");
    }
  }

  void key(std::string name) override {
    if (at_ == At::tensor) {
      const int field = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
      if (field == 0 || (seen_ & field) != 0) {
        fail({"expected dtype, shape and data_offsets once each, got ", excerpt(name),
              field == 0 ? "" : " again"});
      }
      seen_ |= field;
    }
    key_ = std::move(name);
  }

  void end_object() override {
    if (at_ == At::tensor) {
      if (seen_ != 7) fail({"expected dtype, shape and data_offsets, got one missing"});
      header_.tensors.push_back(std::move(entry_));
    } else if (at_ == At::metadata) {
      if (metadata_seen_)
        throw_error(kLoad, {file_, ": expected each name once, got '__metadata__' again"});
      metadata_seen_ = true;
    }
    at_ = at_ == At::header ? At::outside : At::header;
  }

  void begin_array() override {
    if (at_ != At::tensor || key_ == "dtype") unexpected("an array");
    at_ = key_ == "shape" ? At::shape : At::offsets;
    offsets_ = 0;
  }

  void end_array() override {
    if (at_ == At::offsets && offsets_ != 2) fail({"expected two data_offsets, got ", offsets_});
    at_ = At::tensor;
  }

  void damage(size_t byte) override {
    throw_error(kLoad, {file_, ": expected a JSON header in UTF-8, got damage at byte ",
                        kLengthBytes + byte});
  }

 private:
  enum class At { outside, header, tensor, metadata, shape, offsets };

  [[noreturn]] void fail(std::initializer_list<Piece> reason) {
    throw_error(kLoad, {file_, ": tensor ", excerpt(entry_.name), ": ", concat(reason)});
  }

  [[noreturn]] void unexpected(std::string_view got) {
    switch (at_) {
      case At::outside:
        throw_error(kLoad, {file_, ": expected a JSON object as header, got ", got});
      case At::header:
        throw_error(kLoad, {file_, ": expected an object for ", excerpt(key_), ", got ", got});
      case At::metadata:
        throw_error(kLoad,
                    {file_, ": expected a string for metadata ", excerpt(key_), ", got ", got});
      case At::tensor:
        fail({"expected another kind of value for ", key_, ", got ", got});
      case At::shape:
        fail({"expected a shape of sizes from 0 to 2^63-1, got ", got});
      case At::offsets:
        fail({"expected two data_offsets from 0 to 2^63-1, got ", got});
    }
    fail({"got ", got});
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  At at_ = At::outside;
  std::string key_;
  SafetensorsEntry entry_;
  int seen_ = 0;     // fields of the open tensor: 1 dtype, 2 shape, 4 data_offsets
  int offsets_ = 0;  // numbers of the open data_offsets
  bool metadata_seen_ = false;
};

void check_names(const SafetensorsHeader& header, const std::string& file) {
  std::vector<std::string_view> names;
  const auto check = [&](const char* what) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw_error(kLoad,
                  {file, ": expected each ", what, " once, got ", excerpt(*twice), " again"});
    names.clear();
  };
  for (const SafetensorsEntry& entry : header.tensors)
    names.push_back(entry.name);
  check("tensor");
  for (const auto& [key, value] : header.metadata)
    names.push_back(key);
  check("metadata key");
}

void check_places(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& file) {
  std::vector<const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : header.tensors) {
    int64_t bytes = 0;
    try {
      bytes = checked_numel(entry.shape, size_of(entry.dtype), kLoad) * size_of(entry.dtype);
    } catch (const Error&) {
      throw_error(kLoad, {file, ": tensor ", excerpt(entry.name),
                          ": expected a shape whose bytes fit in 63 bits, got ", entry.shape});
    }
    if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
      throw_error(
          kLoad, {file, ": tensor ", excerpt(entry.name), ": expected ", bytes, " bytes for ",
                  entry.dtype, entry.shape, ", got data_offsets ", entry.begin, " to ", entry.end});
    }
    entries.push_back(&entry);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
                     return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
                   });
  int64_t at = 0;
  for (const SafetensorsEntry* entry : entries) {
    if (entry->begin != at) {
      throw_error(kLoad, {file, ": tensor ", excerpt(entry->name),
                          ": expected its bytes to begin at ", at, ", got ", entry->begin,
                          entry->begin < at ? ": it overlaps another" : ": there is a gap"});
    }
    at = entry->end;
  }
  if (static_cast<uint64_t>(at) != data_bytes) {
    throw_error(kLoad,
                {file, ": expected ", at, " bytes of tensors after the header, got ", data_bytes});
  }
}

}  // namespace

uint64_t header_length(const std::byte* first_eight, uint64_t file_bytes, const std::string& file) {
  if (file_bytes < kLengthBytes) {
    throw_error(kLoad, {file, ": expected a safetensors file, got one of ", file_bytes, " bytes"});
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(first_eight[i]);
  const uint64_t most = std::min(kHeaderLimit, file_bytes - kLengthBytes);
  if (length > most) {
    throw_error(
        kLoad, {file, ": expected a header of at most ", most, " bytes, got a length of ", length});
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view text, uint64_t data_bytes,
                               const std::string& file) {
  if (!text.starts_with('{'))
    throw_error(kLoad, {file, ": expected a header that begins with {, got another byte"});
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  parse_json(text, reader);
  check_names(header, file);
  check_places(header, data_bytes, file);
  return header;
}

void place(std::vector<SafetensorsEntry>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(tensors[a].dtype) > size_of(tensors[b].dtype);
  });
  int64_t at = 0;
  for (const size_t i : order) {
    tensors[i].begin = at;
    const int64_t bytes = tensors[i].shape.numel() * size_of(tensors[i].dtype);
    // Broadcast views can claim any size.
    WEFT_CHECK(
        !__builtin_add_overflow(at, bytes, &at), "save_safetensors", "tensor '", tensors[i].name,
        "': expected tensors whose bytes together fit in 63 bits, got shape ", tensors[i].shape);
    tensors[i].end = at;
  }
}

std::string file_head(const SafetensorsHeader& header, const std::string& file) {
  const auto text = [&](const std::string& name) {
    try {
      return Json(name).dump();
    } catch (const Error&) {
      throw_error("save_safetensors",
                  {file, ": expected names and metadata in UTF-8, got other bytes in a string of ",
                   name.size(), " bytes"});
    }
  };
  std::string json = "{";
  const auto separate = [&] {
    if (json.back() != '{') json += ',';
  };
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      separate();
      json += text(key) + ":" + text(value);
    }
    json += '}';
  }
  for (const SafetensorsEntry& entry : header.tensors) {
    separate();
    json += text(entry.name) + concat({":{\"dtype\":\"", kNames[static_cast<size_t>(entry.dtype)],
                                       "\",\"shape\":", entry.shape, ",\"data_offsets\":[",
                                       entry.begin, ",", entry.end, "]}"});
  }
  json += '}';
  // The format allows spaces after the JSON.
  json.append((kDataAlignment - (kLengthBytes + json.size()) % kDataAlignment) % kDataAlignment,
              ' ');
  WEFT_CHECK(json.size() <= kHeaderLimit, "save_safetensors", file,
             ": expected a header of at most ", kHeaderLimit, " bytes, got ", json.size());
  std::string head;
  for (uint64_t i = 0; i < kLengthBytes; ++i)
    head += static_cast<char>(json.size() >> (8 * i) & 0xff);
  return head + json;
}

}  // namespace weft::detail
