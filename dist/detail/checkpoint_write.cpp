#include "dist/detail/checkpoint_write.h"

#include "core/crc32c.h"
#include "core/detail/safetensors_header.h"
#include "core/json.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

namespace weft::dist::detail {
namespace {

// Collects what is short, so that a file of small tensors is not written in small pieces.
class Buffered {
 public:
  explicit Buffered(WriteFile& file) : file_(file) { buffer_.reserve(kBytes); }

  void write(const std::byte* bytes, int64_t count) {
    if (static_cast<int64_t>(buffer_.size()) + count > kBytes) flush();
    if (count > kBytes / 2) {
      flush();
      file_.write(bytes, count);
    } else {
      buffer_.insert(buffer_.end(), bytes, bytes + count);
    }
  }
  void flush() {
    if (!buffer_.empty()) file_.write(buffer_.data(), static_cast<int64_t>(buffer_.size()));
    buffer_.clear();
  }

 private:
  static constexpr int64_t kBytes = 256 * 1024;
  WriteFile& file_;
  std::vector<std::byte> buffer_;
};

StoredTensor described(const Piece& piece, int64_t offset) {
  StoredTensor tensor{piece.name, piece.dtype, piece.shape, piece.order};
  if (piece.count > 0)
    tensor.intervals.push_back({piece.begin, piece.begin + piece.count, 0, offset});
  return tensor;
}

}  // namespace

std::string rank_file_name(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "rank-%05d-of-%05d.safetensors", rank, ranks);
  return name;
}

FileReport write_rank_file(CheckpointStorage& storage, const std::string& directory,
                           const std::string& name, const std::vector<Piece>& pieces,
                           int64_t block_bytes, int64_t step) {
  FileReport report;
  if (pieces.empty()) return report;
  const std::string path = directory + "/" + name;
  weft::detail::SafetensorsHeader header;
  header.metadata = {{"format", "weft checkpoint"}, {"step", std::to_string(step)}};
  for (const Piece& piece : pieces) {
    const bool whole = piece.is_whole() && piece.order.empty();
    header.tensors.push_back(
        {piece.name, piece.dtype, whole ? piece.shape : Shape{piece.count}, 0, 0});
  }
  weft::detail::place(header.tensors);
  const std::string head = weft::detail::file_head(header, path);
  const auto head_bytes = static_cast<int64_t>(head.size());
  report.file = {name, head_bytes, head_bytes, crc32c(head.data(), head.size())};

  std::vector<size_t> order(pieces.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    report.tensors.push_back(described(pieces[i], head_bytes + header.tensors[i].begin));
    report.file.bytes += pieces[i].bytes();
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return header.tensors[a].begin < header.tensors[b].begin;
  });

  const Ref<WriteFile> file = storage.create(path);
  Buffered out(*file);
  out.write(reinterpret_cast<const std::byte*>(head.data()), head_bytes);
  for (const size_t i : order) {
    const Piece& piece = pieces[i];
    for (int64_t at = 0; at < piece.bytes(); at += block_bytes) {
      const int64_t count = std::min(block_bytes, piece.bytes() - at);
      report.tensors[i].intervals[0].crcs.push_back(
          crc32c(piece.data + at, static_cast<size_t>(count)));
      out.write(piece.data + at, count);
    }
  }
  out.flush();
  file->sync();
  file->close();
  return report;
}

std::string report_text(const FileReport& report) {
  Json tensors = Json::array();
  for (const StoredTensor& tensor : report.tensors) {
    Json interval;
    if (!tensor.intervals.empty()) {
      const StoredInterval& own = tensor.intervals[0];
      interval = Json::array({own.begin, own.end, own.offset, own.crcs});
    }
    tensors.push_back(Json::array({tensor.name, static_cast<int>(tensor.dtype),
                                   std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end()),
                                   tensor.order, std::move(interval)}));
  }
  const StoredFile& file = report.file;
  return Json::array({file.name, file.bytes, file.head_bytes, file.head_crc, std::move(tensors)})
      .dump();
}

FileReport parse_report(const std::string& text) {
  const Json json = Json::parse(text);
  FileReport report;
  report.file = {json.at(0).get<std::string>(), json.at(1).get<int64_t>(),
                 json.at(2).get<int64_t>(), json.at(3).get<uint32_t>()};
  for (const Json& given : json.at(4).elements()) {
    const auto shape = given.at(2).get<std::vector<int64_t>>();
    StoredTensor tensor{given.at(0).get<std::string>(), static_cast<DType>(given.at(1).get<int>()),
                        Shape(shape), given.at(3).get<std::vector<int>>()};
    if (const Json& interval = given.at(4); !interval.is_null()) {
      tensor.intervals.push_back({interval.at(0).get<int64_t>(), interval.at(1).get<int64_t>(), 0,
                                  interval.at(2).get<int64_t>(),
                                  interval.at(3).get<std::vector<uint32_t>>()});
    }
    report.tensors.push_back(std::move(tensor));
  }
  return report;
}

void merge_reports(Manifest& manifest, std::vector<FileReport> reports) {
  std::map<std::string, StoredTensor> tensors;
  for (FileReport& report : reports) {
    if (report.file.bytes == 0) continue;
    const auto index = static_cast<int>(manifest.files.size());
    manifest.files.push_back(report.file);
    for (StoredTensor& part : report.tensors) {
      StoredTensor& whole =
          tensors
              .try_emplace(part.name, StoredTensor{part.name, part.dtype, part.shape, part.order})
              .first->second;
      WEFT_CHECK(
          whole.dtype == part.dtype && whole.shape == part.shape && whole.order == part.order,
          "checkpoint", "expected one dtype, shape and layout of ", part.name,
          " on all ranks, got ", whole.dtype, whole.shape, " and ", part.dtype, part.shape);
      for (StoredInterval& interval : part.intervals) {
        interval.file = index;
        whole.intervals.push_back(std::move(interval));
      }
    }
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.intervals.begin(), tensor.intervals.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int64_t at = 0;
    for (const StoredInterval& interval : tensor.intervals) {
      WEFT_CHECK(interval.begin == at, "checkpoint", "expected ranks to save every element of ",
                 name, " once, got ", interval.begin < at ? "two" : "none", " of element ",
                 std::min(at, interval.begin));
      at = interval.end;
      int64_t left = (interval.end - interval.begin) * size_of(tensor.dtype);
      for (const uint32_t crc : interval.crcs) {
        const int64_t block = std::min(left, manifest.block_bytes);
        tensor.crc = crc32c_combine(tensor.crc, crc, static_cast<uint64_t>(block));
        left -= block;
      }
    }
    WEFT_CHECK(at == tensor.numel(), "checkpoint", "expected ranks to save all ", tensor.numel(),
               " elements of ", name, ", got ", at);
    manifest.tensors.push_back(std::move(tensor));
  }
}

void write_manifest(CheckpointStorage& storage, const std::string& directory,
                    const Manifest& manifest) {
  const std::string text = manifest_text(manifest);
  const Ref<WriteFile> file = storage.create(directory + "/manifest.json");
  file->write(text.data(), static_cast<int64_t>(text.size()));
  file->sync();
  file->close();
}

}  // namespace weft::dist::detail
