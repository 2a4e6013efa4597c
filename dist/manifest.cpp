#include "dist/manifest.h"

#include "core/crc32c.h"
#include "core/json.h"
#include "dist/detail/manifest_text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace weft::dist {

namespace detail {

std::string hex8(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string hex16(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string manifest_tail(std::string_view body) {
  return "\n,\"crc32c\":\"" + hex8(crc32c(body.data(), body.size())) + "\"}\n";
}

}  // namespace detail

namespace {

using detail::hex16;
using detail::hex8;

std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Error&) {
    throw_error("checkpoint", {"expected names and values in UTF-8, got other bytes in a text of ",
                               text.size(), " bytes"});
  }
}

// JSON has no infinity and no NaN.
std::string number(double value) {
  if (std::isfinite(value)) return Json(value).dump();
  return "{\"bits\":\"" + hex16(std::bit_cast<uint64_t>(value)) + "\"}";
}

std::string value_text(const std::variant<int64_t, double, std::string>& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return number(*real);
  return quoted(std::get<std::string>(value));
}

// "[1,2,3]"
template <class List>
std::string list_text(const List& list) {
  std::string text = "[";
  for (const auto item : list)
    text += (text.size() > 1 ? "," : "") + std::to_string(item);
  return text + "]";
}

template <class Pairs, class F>
std::string object_text(const Pairs& pairs, const F& text_of) {
  std::string text = "{";
  for (const auto& pair : pairs)
    text += (text.size() > 1 ? "," : "") + text_of(pair);
  return text + "}";
}

std::string strings_text(const std::vector<std::pair<std::string, std::string>>& pairs) {
  return object_text(
      pairs, [](const auto& pair) { return quoted(pair.first) + ":" + quoted(pair.second); });
}

std::string values_text(const std::vector<NamedValue>& values) {
  return object_text(
      values, [](const NamedValue& v) { return quoted(v.name) + ":" + value_text(v.value); });
}

// Name, dtype, shape, order and CRC: what the digest sees of a tensor.
std::string tensor_text(const StoredTensor& tensor) {
  std::string text = "{\"name\":" + quoted(tensor.name) + ",\"dtype\":\"" +
                     to_string(tensor.dtype) + "\",\"shape\":" + list_text(tensor.shape);
  if (!tensor.order.empty()) text += ",\"order\":" + list_text(tensor.order);
  return text + ",\"crc32c\":\"" + hex8(tensor.crc) + "\"";
}

std::string interval_text(const StoredInterval& interval) {
  std::string text =
      concat({"{\"begin\":", interval.begin, ",\"end\":", interval.end, ",\"file\":", interval.file,
              ",\"offset\":", interval.offset, ",\"crc32c\":["});
  for (size_t i = 0; i < interval.crcs.size(); ++i)
    text += (i > 0 ? ",\"" : "\"") + hex8(interval.crcs[i]) + "\"";
  return text + "]}";
}

std::string metric_text(double metric) {
  return std::isnan(metric) ? "null" : number(metric);
}

// What is in the digest beside the tensors.
std::string progress_text(const Manifest& manifest) {
  const TrainingProgress& progress = manifest.progress;
  std::string text = concat({"\"step\":", progress.step, ",\"epoch\":", progress.epoch,
                             ",\"consumed\":", progress.consumed,
                             ",\"seed\":", static_cast<unsigned long long>(manifest.seed)});
  text += ",\"metric\":" + metric_text(progress.metric) +
          ",\"best_metric\":" + metric_text(progress.best_metric);
  if (manifest.schedule) text += ",\"schedule\":" + std::to_string(*manifest.schedule);
  return text + ",\n\"values\":" + values_text(progress.values) +
         ",\n\"aliases\":" + strings_text(manifest.aliases);
}

}  // namespace

const StoredTensor* Manifest::find(std::string_view name) const {
  const auto find_own = [this](std::string_view wanted) -> const StoredTensor* {
    const auto at = std::lower_bound(
        tensors.begin(), tensors.end(), wanted,
        [](const StoredTensor& tensor, std::string_view other) { return tensor.name < other; });
    return at != tensors.end() && at->name == wanted ? &*at : nullptr;
  };
  if (const StoredTensor* own = find_own(name)) return own;
  for (const auto& [alias, first] : aliases) {
    if (alias == name) return find_own(first);
  }
  return nullptr;
}

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const StoredFile& file : files)
    sum += file.bytes;
  return sum;
}

std::string Manifest::digest() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](const std::string& text) {
    for (const char c : text)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  add(progress_text(*this));
  for (const StoredTensor& tensor : tensors)
    add(tensor_text(tensor));
  return hex16(hash);
}

std::string manifest_text(const Manifest& manifest) {
  std::string body =
      "{\"format\":\"weft checkpoint\",\"version\":1,\n" + progress_text(manifest) +
      ",\n\"notes\":" + strings_text(manifest.progress.notes) +
      ",\n\"strategy\":" + quoted(manifest.strategy) +
      concat({",\"ranks\":", manifest.ranks, ",\"block_bytes\":", manifest.block_bytes}) +
      ",\n\"digest\":\"" + manifest.digest() + "\",\n\"files\":[";
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const StoredFile& file = manifest.files[i];
    body += (i > 0 ? ",\n " : "\n ") +
            ("{\"name\":" + quoted(file.name) +
             concat({",\"bytes\":", file.bytes, ",\"head_bytes\":", file.head_bytes})) +
            ",\"head_crc32c\":\"" + hex8(file.head_crc) + "\"}";
  }
  body += "],\n\"tensors\":[";
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const StoredTensor& tensor = manifest.tensors[i];
    body += (i > 0 ? ",\n " : "\n ") + tensor_text(tensor) + ",\"intervals\":[";
    for (size_t k = 0; k < tensor.intervals.size(); ++k)
      body += (k > 0 ? "," : "") + interval_text(tensor.intervals[k]);
    body += "]}";
  }
  body += "]";
  return body + detail::manifest_tail(body);
}

std::string read_manifest_text(CheckpointStorage& storage, const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  try {
    const Ref<ReadFile> file = storage.open(path);
    std::string text(static_cast<size_t>(file->bytes()), '\0');
    file->read(text.data(), 0, file->bytes());
    return text;
  } catch (const StorageError& error) {
    if (error.missing()) throw DamagedCheckpoint(error.what());
    throw;
  }
}

Manifest read_manifest(CheckpointStorage& storage, const std::string& checkpoint) {
  return parse_manifest(read_manifest_text(storage, checkpoint), checkpoint + "/manifest.json");
}

}  // namespace weft::dist
