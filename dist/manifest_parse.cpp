// Reading a manifest, every bound checked.
#include "core/crc32c.h"
#include "core/json.h"
#include "dist/detail/manifest_text.h"
#include "dist/manifest.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace weft::dist {
namespace {

class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  [[noreturn]] void fail(std::initializer_list<weft::Piece> what) const {
    throw DamagedCheckpoint(concat({"[checkpoint] ", path_, ": expected ", concat(what)}));
  }

  const Json& field(const Json& object, const char* key) const {
    if (!object.is_object()) fail({"an object with ", key, ", got another kind of value"});
    const Json* value = object.find(key);
    if (!value) fail({key, ", got none"});
    return *value;
  }
  int64_t integer(const Json& value, const char* what, int64_t low,
                  int64_t high = INT64_MAX) const {
    if (value.kind() == Json::Kind::natural) fail({what, " of at most 2^63-1, got more"});
    if (!value.is_integer()) fail({"an integer as ", what, ", got another kind of value"});
    const auto number = value.get<int64_t>();
    if (number < low || number > high) fail({what, " of ", low, " to ", high, ", got ", number});
    return number;
  }
  std::string text(const Json& value, const char* what) const {
    if (!value.is_text()) fail({"a text as ", what, ", got another kind of value"});
    return value.text();
  }
  const std::vector<Json>& list(const Json& value, const char* what) const {
    if (!value.is_array()) fail({"a list as ", what, ", got another kind of value"});
    return value.elements();
  }
  std::vector<Json::Member> members(const Json& value, const char* what) const {
    if (!value.is_object()) fail({"an object as ", what, ", got another kind of value"});
    return value.members();
  }
  uint64_t hex(const Json& value, const char* what, size_t digits) const {
    const std::string given = text(value, what);
    uint64_t number = 0;
    const char* const end = given.data() + given.size();
    const auto [at, error] = std::from_chars(given.data(), end, number, 16);
    const bool sound = given.size() == digits && error == std::errc() && at == end;
    if (!sound || (digits == 8 ? detail::hex8(static_cast<uint32_t>(number))
                               : detail::hex16(number)) != given)
      fail({digits, " hex digits as ", what, ", got another text"});
    return number;
  }
  uint32_t crc(const Json& value, const char* what) const {
    return static_cast<uint32_t>(hex(value, what, 8));
  }
  double real(const Json& value, const char* what) const {
    if (value.is_object()) return std::bit_cast<double>(hex(field(value, "bits"), what, 16));
    if (!value.is_number()) fail({"a number as ", what, ", got another kind of value"});
    return value.get<double>();
  }
  double metric(const Json& value, const char* what) const {
    return value.is_null() ? TrainingProgress{}.metric : real(value, what);
  }

 private:
  const std::string& path_;
};

std::vector<std::pair<std::string, std::string>> read_strings(const ManifestReader& reader,
                                                              const Json& object,
                                                              const char* what) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [key, value] : reader.members(object, what))
    pairs.emplace_back(key, reader.text(value, what));
  return pairs;
}

void read_progress(const ManifestReader& reader, const Json& json, Manifest& manifest) {
  TrainingProgress& progress = manifest.progress;
  progress.step = reader.integer(reader.field(json, "step"), "step", 0);
  progress.epoch = reader.integer(reader.field(json, "epoch"), "epoch", 0);
  progress.consumed = reader.integer(reader.field(json, "consumed"), "consumed", 0);
  progress.metric = reader.metric(reader.field(json, "metric"), "metric");
  progress.best_metric = reader.metric(reader.field(json, "best_metric"), "best_metric");
  const Json& seed = reader.field(json, "seed");
  if (!seed.is_integer() || (seed.kind() == Json::Kind::integer && seed.get<int64_t>() < 0))
    reader.fail({"a seed of 0 to 2^64-1, got another value"});
  manifest.seed = seed.get<uint64_t>();
  if (const Json* schedule = json.find("schedule"))
    manifest.schedule = reader.integer(*schedule, "schedule", 0);
  for (const auto& [key, value] : reader.members(reader.field(json, "values"), "values")) {
    NamedValue& named = progress.values.emplace_back();
    named.name = key;
    if (value.is_integer()) {
      named.value = reader.integer(value, "a value", INT64_MIN);
    } else if (value.is_text()) {
      named.value = value.text();
    } else {
      named.value = reader.real(value, "a value");
    }
  }
  progress.notes = read_strings(reader, reader.field(json, "notes"), "notes");
  manifest.aliases = read_strings(reader, reader.field(json, "aliases"), "aliases");
}

// More than a safetensors file's can be.
constexpr int64_t kLongestHead = int64_t{1} << 27;

// A name in the checkpoint's own directory.
bool is_plain(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.size() <= 255 && name != "manifest.json" &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

void read_files(const ManifestReader& reader, const Json& json, Manifest& manifest) {
  std::vector<std::string> names;
  int64_t total = 0;
  for (const Json& given : reader.list(reader.field(json, "files"), "files")) {
    StoredFile file;
    file.name = reader.text(reader.field(given, "name"), "a file's name");
    if (!is_plain(file.name)) reader.fail({"plain names of files, got '", file.name, "'"});
    file.bytes = reader.integer(reader.field(given, "bytes"), "a file's bytes", 0);
    file.head_bytes = reader.integer(reader.field(given, "head_bytes"), "head_bytes", 0,
                                     std::min(file.bytes, kLongestHead));
    if (__builtin_add_overflow(total, file.bytes, &total))
      reader.fail({"files of at most 2^63-1 bytes together, got more"});
    file.head_crc = reader.crc(reader.field(given, "head_crc32c"), "head_crc32c");
    names.push_back(file.name);
    manifest.files.push_back(std::move(file));
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end())
    reader.fail({"every file once, got one twice"});
}

StoredInterval read_interval(const ManifestReader& reader, const Json& given,
                             const StoredTensor& tensor, const Manifest& manifest) {
  const int64_t width = size_of(tensor.dtype);
  StoredInterval interval;
  interval.begin = reader.integer(reader.field(given, "begin"), "begin", 0, tensor.numel());
  interval.end = reader.integer(reader.field(given, "end"), "end", 0, tensor.numel());
  const auto files = static_cast<int64_t>(manifest.files.size());
  interval.file =
      static_cast<int>(reader.integer(reader.field(given, "file"), "file", 0, files - 1));
  if (interval.end <= interval.begin)
    reader.fail({"intervals with elements, got one of ", tensor.name, " without"});
  const int64_t bytes = (interval.end - interval.begin) * width;
  const StoredFile& file = manifest.files[static_cast<size_t>(interval.file)];
  interval.offset = reader.integer(reader.field(given, "offset"), "offset", file.head_bytes);
  if (interval.offset > file.bytes - bytes)
    reader.fail({"intervals inside their files, got one of ", tensor.name, " beyond the end of ",
                 file.name});
  for (const Json& crc : reader.list(reader.field(given, "crc32c"), "crc32c"))
    interval.crcs.push_back(reader.crc(crc, "crc32c"));
  const int64_t blocks = (bytes - 1) / manifest.block_bytes + 1;
  if (static_cast<int64_t>(interval.crcs.size()) != blocks)
    reader.fail({blocks, " CRCs for an interval of ", tensor.name, ", got ", interval.crcs.size()});
  return interval;
}

StoredTensor read_tensor(const ManifestReader& reader, const Json& given,
                         const Manifest& manifest) {
  StoredTensor tensor;
  tensor.name = reader.text(reader.field(given, "name"), "a tensor's name");
  try {
    tensor.dtype = dtype_from_name(reader.text(reader.field(given, "dtype"), "dtype"));
    for (const Json& size : reader.list(reader.field(given, "shape"), "shape"))
      tensor.shape.push_back(reader.integer(size, "a size", 0));
    checked_numel(tensor.shape, size_of(tensor.dtype), "checkpoint");
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const Error& error) {
    reader.fail({"a sound dtype and shape of ", tensor.name, ", got: ", error.what()});
  }
  const int dims = tensor.shape.dims();
  if (const Json* order = given.find("order")) {
    std::vector<bool> seen(static_cast<size_t>(dims), false);
    for (const Json& dim : reader.list(*order, "order")) {
      const auto value = static_cast<size_t>(reader.integer(dim, "order", 0, dims - 1));
      if (seen[value])
        reader.fail({"each dim once in the order of ", tensor.name, ", got one twice"});
      seen[value] = true;
      tensor.order.push_back(static_cast<int>(value));
    }
    if (static_cast<int>(tensor.order.size()) != dims)
      reader.fail({"all dims in the order of ", tensor.name, ", got ", tensor.order.size()});
  }
  tensor.crc = reader.crc(reader.field(given, "crc32c"), "crc32c");
  int64_t at = 0;
  uint32_t crc = 0;
  for (const Json& each : reader.list(reader.field(given, "intervals"), "intervals")) {
    StoredInterval interval = read_interval(reader, each, tensor, manifest);
    if (interval.begin != at)
      reader.fail({"intervals of ", tensor.name, " to go on at ", at, ", got ", interval.begin});
    at = interval.end;
    int64_t bytes = (interval.end - interval.begin) * size_of(tensor.dtype);
    for (const uint32_t block : interval.crcs) {
      const int64_t length = std::min(bytes, manifest.block_bytes);
      crc = crc32c_combine(crc, block, static_cast<uint64_t>(length));
      bytes -= length;
    }
    tensor.intervals.push_back(std::move(interval));
  }
  if (at != tensor.numel())
    reader.fail({"intervals of ", tensor.name, " up to ", tensor.numel(), ", got ", at});
  if (crc != tensor.crc)
    reader.fail({"the CRC32C of ", tensor.name, " to be that of its intervals, got another"});
  return tensor;
}

// Every byte of every file belongs to its head or to one interval.
void check_files(const ManifestReader& reader, const Manifest& manifest) {
  struct Place {
    int file;
    int64_t begin, end;
  };
  std::vector<Place> places;
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredInterval& interval : tensor.intervals) {
      places.push_back({interval.file, interval.offset,
                        interval.offset + (interval.end - interval.begin) * size_of(tensor.dtype)});
    }
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
  });
  size_t next = 0;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const StoredFile& file = manifest.files[i];
    int64_t at = file.head_bytes;
    for (; next < places.size() && places[next].file == static_cast<int>(i); ++next) {
      if (places[next].begin != at)
        reader.fail({"no gaps and no overlaps in ", file.name, ", got one at ", at});
      at = places[next].end;
    }
    if (at != file.bytes)
      reader.fail({file.bytes, " bytes of tensors and head in ", file.name, ", got ", at});
  }
}

}  // namespace

Manifest parse_manifest_body(std::string_view body, const std::string& path) {
  const ManifestReader reader(path);
  const auto parsed = Json::try_parse(std::string(body) + "}");
  if (!parsed) reader.fail({"JSON, got a syntax error"});
  const Json& json = *parsed;
  if (reader.text(reader.field(json, "format"), "format") != "weft checkpoint")
    reader.fail({"the format 'weft checkpoint', got another"});
  reader.integer(reader.field(json, "version"), "version", 1, 1);
  Manifest manifest;
  read_progress(reader, json, manifest);
  manifest.strategy = reader.text(reader.field(json, "strategy"), "strategy");
  manifest.ranks =
      static_cast<int>(reader.integer(reader.field(json, "ranks"), "ranks", 0, INT32_MAX));
  manifest.block_bytes = reader.integer(reader.field(json, "block_bytes"), "block_bytes", 8);
  if (manifest.block_bytes % 8 != 0)
    reader.fail({"block_bytes that 8 divides, got ", manifest.block_bytes});
  read_files(reader, json, manifest);
  for (const Json& given : reader.list(reader.field(json, "tensors"), "tensors")) {
    StoredTensor tensor = read_tensor(reader, given, manifest);
    if (!manifest.tensors.empty() && manifest.tensors.back().name >= tensor.name)
      reader.fail({"tensors by name, each once, got ", tensor.name, " out of place"});
    manifest.tensors.push_back(std::move(tensor));
  }
  check_files(reader, manifest);
  if (const std::string digest = reader.text(reader.field(json, "digest"), "digest");
      digest != manifest.digest())
    reader.fail({"the digest ", manifest.digest(), ", got '", digest.substr(0, 16), "'"});
  return manifest;
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const ManifestReader reader(path);
  if (text.size() < detail::kManifestTailBytes)
    reader.fail({"a manifest, got ", text.size(), " bytes"});
  const std::string_view body = text.substr(0, text.size() - detail::kManifestTailBytes);
  if (text.substr(body.size()) != detail::manifest_tail(body))
    reader.fail(
        {"its last line to be the CRC32C of the text before it, got another: the manifest "
         "is damaged or cut short"});
  return parse_manifest_body(body, path);
}

}  // namespace weft::dist
