#include "core/safetensors.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kHeaderLimit = 100'000'000;  // the format's own bound
constexpr size_t kLengthBytes = 8;
constexpr size_t kDataAlignment = 64;

constexpr std::array<std::pair<const char*, DType>, 8> kNames = {{{"BOOL", boolean},
                                                                  {"U8", u8},
                                                                  {"I32", i32},
                                                                  {"I64", i64},
                                                                  {"F16", f16},
                                                                  {"BF16", bf16},
                                                                  {"F32", f32},
                                                                  {"F64", f64}}};

const char* name_of(DType dtype) {
  return std::find_if(kNames.begin(), kNames.end(),
                      [&](const auto& entry) { return entry.second == dtype; })
      ->first;
}

[[noreturn]] void fail(const char* op, const std::string& file,
                       std::initializer_list<Piece> reason) {
  throw_error(op, {file, ": ", concat(reason)});
}

// A tensor as the header describes it, checked.
struct Entry {
  std::string name;
  DType dtype = f32;
  Shape shape;
  int64_t begin = 0;
  int64_t end = 0;
};

// A non-negative integer of the header.
int64_t whole_number(const Json& value, const std::string& file, const std::string& tensor,
                     const char* what) {
  if (value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX) return value.get<int64_t>();
  fail("load_safetensors", file,
       {"tensor '", tensor, "': expected a whole number as ", what, ", got ", value.dump()});
}

Entry entry_of(const std::string& name, const Json& json, const std::string& file) {
  constexpr const char* op = "load_safetensors";
  const auto field = [&](const char* key) -> const Json& {
    if (!json.is_object() || !json.contains(key)) {
      fail(op, file, {"tensor '", name, "': expected dtype, shape and data_offsets, got no ", key});
    }
    return json.at(key);
  };
  Entry entry;
  entry.name = name;
  const Json& dtype = field("dtype");
  const auto known = std::find_if(kNames.begin(), kNames.end(), [&](const auto& pair) {
    return dtype.is_string() && dtype == pair.first;
  });
  if (known == kNames.end()) {
    fail(op, file,
         {"tensor '", name, "': expected a dtype of BOOL U8 I32 I64 F16 BF16 F32 F64, got ",
          dtype.dump()});
  }
  entry.dtype = known->second;
  const Json& shape = field("shape");
  if (!shape.is_array() || shape.size() > kMaxDims) {
    fail(op, file, {"tensor '", name, "': expected a shape of at most 8 dims, got ", shape.dump()});
  }
  for (const Json& size : shape)
    entry.shape.push_back(whole_number(size, file, name, "a size"));
  const Json& offsets = field("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(op, file, {"tensor '", name, "': expected two data_offsets, got ", offsets.dump()});
  }
  entry.begin = whole_number(offsets[0], file, name, "an offset");
  entry.end = whole_number(offsets[1], file, name, "an offset");
  int64_t bytes = 0;
  try {
    bytes = checked_numel(entry.shape, size_of(entry.dtype), op) * size_of(entry.dtype);
  } catch (const Error&) {
    fail(op, file,
         {"tensor '", name, "': expected a shape whose size fits in memory, got ", entry.shape});
  }
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    fail(op, file,
         {"tensor '", name, "': expected ", bytes, " bytes for ", entry.dtype, entry.shape,
          ", got bytes ", entry.begin, " to ", entry.end});
  }
  return entry;
}

// The JSON of the header; a name that stands twice is refused, where nlohmann::json alone would
// keep the last.
Json parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 16)
      fail("load_safetensors", file, {"expected a header of a few levels, got more than 16"});
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key &&
        !open_objects.back().insert(parsed.get<std::string>()).second) {
      fail("load_safetensors", file,
           {"expected each name once, got '", parsed.get<std::string>(), "' again"});
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail("load_safetensors", file, {"expected a JSON header, got damage: ", error.what()});
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, const void* data, size_t count, const std::string& path) {
  const auto* from = static_cast<const std::byte*>(data);
  while (count > 0) {
    const ssize_t done = write(fd, from, count);
    if (done < 0 && errno == EINTR) continue;
    WEFT_CHECK(done > 0, "save_safetensors", "expected to write ", path, ", got ",
               std::strerror(errno));
    from += done;
    count -= static_cast<size_t>(done);
  }
}

// The bytes of a tensor in row-major order: its own, or a copy put into `scratch`.
const std::byte* row_major(const Tensor& tensor, std::vector<std::byte>& scratch) {
  if (tensor.is_contiguous()) return tensor.raw();
  const auto width = static_cast<size_t>(size_of(tensor.dtype()));
  scratch.resize(static_cast<size_t>(tensor.bytes()));
  Shape at = Shape::filled(tensor.dims(), 0);
  int64_t offset = 0;
  for (size_t i = 0; i < static_cast<size_t>(tensor.numel()); ++i) {
    std::memcpy(scratch.data() + i * width, tensor.raw() + offset * static_cast<int64_t>(width),
                width);
    for (int d = tensor.dims() - 1; d >= 0; --d) {
      offset += tensor.strides()[d];
      if (++at[d] < tensor.shape()[d]) break;
      offset -= tensor.strides()[d] * at[d];
      at[d] = 0;
    }
  }
  return scratch.data();
}

void write_file(const std::string& path, std::span<const NamedTensor> tensors,
                const std::string& header) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  WEFT_CHECK(file.get() >= 0, "save_safetensors", "expected to write ", path, ", got ",
             std::strerror(errno));
  std::array<uint8_t, kLengthBytes> length;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  write_all(file.get(), length.data(), length.size(), path);
  write_all(file.get(), header.data(), header.size(), path);
  std::vector<std::byte> scratch;
  for (const NamedTensor& entry : tensors) {
    write_all(file.get(), row_major(entry.tensor, scratch),
              static_cast<size_t>(entry.tensor.bytes()), path);
  }
  WEFT_CHECK(fsync(file.get()) == 0, "save_safetensors", "expected to sync ", path, ", got ",
             std::strerror(errno));
}

}  // namespace

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      std::span<const std::pair<std::string, std::string>> metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    auto& strings = json["__metadata__"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : metadata)
      strings[key] = value;
  }
  int64_t offset = 0;
  for (const NamedTensor& entry : tensors) {
    WEFT_CHECK(entry.tensor.defined(), "save_safetensors", "expected a tensor for '", entry.name,
               "', got an undefined one");
    WEFT_CHECK(!json.contains(entry.name) && entry.name != "__metadata__", "save_safetensors",
               "expected each name once, got '", entry.name, "' again");
    const int64_t end = offset + entry.tensor.bytes();
    json[entry.name] = {
        {"dtype", name_of(entry.tensor.dtype())},
        {"shape", std::vector<int64_t>(entry.tensor.shape().begin(), entry.tensor.shape().end())},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string header;
  try {
    header = json.dump();
  } catch (const Json::exception& error) {
    throw_error("save_safetensors",
                {path, ": expected names and metadata in UTF-8, got ", error.what()});
  }
  // The format allows spaces after the JSON; they align the data.
  const size_t used = (kLengthBytes + header.size()) % kDataAlignment;
  if (used != 0) header.append(kDataAlignment - used, ' ');
  const std::string partial = path + ".partial";
  try {
    write_file(partial, tensors, header);
    WEFT_CHECK(std::rename(partial.c_str(), path.c_str()) == 0, "save_safetensors",
               "expected to rename ", partial, " to ", path, ", got ", std::strerror(errno));
  } catch (...) {
    unlink(partial.c_str());
    throw;
  }
}

std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name) {
  constexpr const char* op = "load_safetensors";
  if (bytes.size() < kLengthBytes)
    fail(op, name, {"expected at least 8 bytes, got ", bytes.size()});
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (length > std::min<uint64_t>(kHeaderLimit, bytes.size() - kLengthBytes)) {
    fail(op, name,
         {"expected a header of at most ",
          std::min<uint64_t>(kHeaderLimit, bytes.size() - kLengthBytes), " bytes, got a length of ",
          length});
  }
  const Json header =
      parse_header({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length}, name);
  if (!header.is_object())
    fail(op, name, {"expected a JSON object as header, got ", header.type_name()});
  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);

  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") entries.push_back(entry_of(key, value, name));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  int64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at) {
      fail(op, name,
           {"tensor '", entry.name, "': expected its bytes to begin at ", at, ", got ", entry.begin,
            " (a gap or an overlap)"});
    }
    at = entry.end;
  }
  if (at != static_cast<int64_t>(data.size())) {
    fail(op, name, {"expected ", at, " bytes of tensors, got ", data.size()});
  }

  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries) {
    const Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
    const std::byte* from = data.data() + entry.begin;
    const auto count = static_cast<size_t>(tensor.bytes());
    if (count > 0) std::memcpy(tensor.raw(), from, count);
    if (entry.dtype == boolean &&
        std::any_of(from, from + count, [](std::byte b) { return std::to_integer<int>(b) > 1; })) {
      fail(op, name, {"tensor '", entry.name, "': expected bools of 0 or 1, got another byte"});
    }
    tensors.push_back({entry.name, tensor});
  }
  return tensors;
}

std::vector<NamedTensor> load_safetensors(const std::string& path) {
  constexpr const char* op = "load_safetensors";
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  WEFT_CHECK(file.get() >= 0, op, "expected a readable file, got ", path, ": ",
             std::strerror(errno));
  struct stat status {};
  WEFT_CHECK(fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), op,
             "expected a regular file, got ", path);
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    WEFT_CHECK(got > 0, op, path, " at byte ", done, ": expected more bytes, got ",
               got == 0 ? "the end of the file" : std::strerror(errno));
    done += static_cast<size_t>(got);
  }
  return parse_safetensors(bytes, path);
}

}  // namespace weft
