#include "core/safetensors.h"

#include "core/detail/safetensors_header.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <unordered_set>

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so is this code");

constexpr const char* kLoad = "load_safetensors";
constexpr const char* kSave = "save_safetensors";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (is_open()) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  // False if the system reports that what was written is lost.
  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
};

std::string reason() {
  return std::strerror(errno);
}

void write_all(const File& file, const void* bytes, size_t count, const std::string& path) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(file.descriptor(), at, count);
    if (written < 0 && errno == EINTR) continue;
    WEFT_CHECK(written > 0, kSave, path, ": expected to write ", count,
               " bytes more, got: ", reason());
    at += written;
    count -= static_cast<size_t>(written);
  }
}

// Elements in row-major order, whatever the strides, through a buffer of fixed size.
class RowMajorWriter {
 public:
  RowMajorWriter(const File& file, const std::string& path) : file_(file), path_(path) {}

  void write(const Tensor& tensor) {
    if (tensor.is_contiguous())
      return write_all(file_, tensor.raw(), static_cast<size_t>(tensor.bytes()), path_);
    gather(tensor, 0, tensor.raw(), size_of(tensor.dtype()));
    flush();
  }

 private:
  void gather(const Tensor& tensor, int dim, const std::byte* from, int64_t width) {
    if (dim == tensor.dims()) {
      if (buffer_.size() + static_cast<size_t>(width) > kBuffer) flush();
      buffer_.insert(buffer_.end(), from, from + width);
      return;
    }
    for (int64_t i = 0; i < tensor.shape()[dim]; ++i) {
      gather(tensor, dim + 1, from + i * tensor.strides()[dim] * width, width);
    }
  }
  void flush() {
    write_all(file_, buffer_.data(), buffer_.size(), path_);
    buffer_.clear();
  }

  static constexpr size_t kBuffer = size_t{1} << 20;
  const File& file_;
  const std::string& path_;
  std::vector<std::byte> buffer_;
};

// Makes the rename itself survive a crash.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to do on those.
  WEFT_CHECK(file.is_open() && (::fsync(file.descriptor()) == 0 || errno == EINVAL), kSave, path,
             ": expected to sync its folder, got: ", reason());
}

// Reads count bytes at offset; throws if they are not there.
using Read = std::function<void(void* to, int64_t offset, int64_t count)>;

Tensor read_tensor(const detail::SafetensorsEntry& entry, const Read& read,
                   const std::string& file) {
  const Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
  read(tensor.raw(), entry.begin, entry.end - entry.begin);
  if (entry.dtype == boolean) {
    const bool whole = std::all_of(tensor.raw(), tensor.raw() + tensor.bytes(),
                                   [](std::byte value) { return value <= std::byte{1}; });
    WEFT_CHECK(whole, kLoad, file, ": tensor '", entry.name,
               "': expected bools of 0 or 1, got another value");
  }
  return tensor;
}

std::vector<NamedTensor> read_tensors(const detail::SafetensorsHeader& header, const Read& read,
                                      const std::string& file) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(header.tensors.size());
  for (const detail::SafetensorsEntry& entry : header.tensors)
    tensors.push_back({entry.name, read_tensor(entry, read, file)});
  return tensors;
}

}  // namespace

// An open file with its header read.
class SafetensorsFile::Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    WEFT_CHECK(file_.is_open(), kLoad, path, ": expected a readable file, got: ", reason());
    struct stat status {};
    WEFT_CHECK(::fstat(file_.descriptor(), &status) == 0, kLoad, path,
               ": expected its size, got: ", reason());
    WEFT_CHECK(S_ISREG(status.st_mode), kLoad, path, ": expected a regular file, got another kind");
    const auto bytes = static_cast<uint64_t>(status.st_size);
    std::byte first_eight[detail::kLengthBytes] = {};
    read_at(first_eight, 0, static_cast<int64_t>(std::min(bytes, detail::kLengthBytes)));
    const uint64_t length = detail::header_length(first_eight, bytes, path);
    std::string text(length, '\0');
    read_at(text.data(), static_cast<int64_t>(detail::kLengthBytes), static_cast<int64_t>(length));
    data_ = detail::kLengthBytes + length;
    header_ = detail::parse_header(text, bytes - data_, path);
  }

  const detail::SafetensorsHeader& header() const { return header_; }

  // `offset` counts from the first byte after the header.
  void read(void* to, int64_t offset, int64_t count) const {
    read_at(to, static_cast<int64_t>(data_) + offset, count);
  }

 private:
  void read_at(void* to, int64_t offset, int64_t count) const {
    auto* at = static_cast<char*>(to);
    while (count > 0) {
      const ssize_t got = ::pread(file_.descriptor(), at, static_cast<size_t>(count), offset);
      if (got < 0 && errno == EINTR) continue;
      WEFT_CHECK(got > 0, kLoad, path_, ": expected ", count, " bytes at ", offset, ", got ",
                 got == 0 ? "the end of the file" : reason());
      at += got;
      offset += got;
      count -= got;
    }
  }

  const std::string& path_;
  File file_;
  uint64_t data_ = 0;  // where the tensors begin
  detail::SafetensorsHeader header_;
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), reader_(new Reader(path_)) {
  for (const detail::SafetensorsEntry& entry : reader_->header().tensors)
    entries_.push_back({entry.name, entry.dtype, entry.shape});
}

SafetensorsFile::~SafetensorsFile() {
  delete reader_;
}

const std::vector<std::pair<std::string, std::string>>& SafetensorsFile::metadata() const {
  return reader_->header().metadata;
}

Tensor SafetensorsFile::read(size_t entry) const {
  return read_tensor(
      reader_->header().tensors.at(entry),
      [&](void* to, int64_t offset, int64_t count) { reader_->read(to, offset, count); }, path_);
}

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      std::span<const std::pair<std::string, std::string>> metadata) {
  detail::SafetensorsHeader header;
  header.metadata.assign(metadata.begin(), metadata.end());
  std::unordered_set<std::string_view> names;
  for (const auto& [key, value] : metadata) {
    WEFT_CHECK(names.insert(key).second, kSave, path, ": expected each metadata key once, got '",
               key, "' again");
  }
  names.clear();
  for (const auto& [name, tensor] : tensors) {
    WEFT_CHECK(tensor.defined(), kSave, path, ": tensor '", name,
               "': expected a tensor, got an undefined one");
    WEFT_CHECK(tensor.device().is_cpu(), kSave, path, ": tensor '", name,
               "': expected device cpu, got ", tensor.device());
    WEFT_CHECK(name != "__metadata__", kSave, path,
               ": expected another name than __metadata__, the format's own");
    WEFT_CHECK(names.insert(name).second, kSave, path, ": expected each tensor once, got '", name,
               "' again");
    header.tensors.push_back({name, tensor.dtype(), tensor.shape(), 0, 0});
  }
  detail::place(header.tensors);
  const std::string head = detail::file_head(header, path);
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return header.tensors[a].begin < header.tensors[b].begin;
  });

  // A name no other writer has: two of one path must not write into each other's file.
  static std::atomic<unsigned> count{0};
  const std::string temporary =
      concat({path, ".", ::getpid(), ".", count.fetch_add(1), ".partial"});
  File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  WEFT_CHECK(file.is_open(), kSave, path, ": expected to create ", temporary, ", got: ", reason());
  try {
    write_all(file, head.data(), head.size(), path);
    RowMajorWriter writer(file, path);
    for (const size_t i : order)
      writer.write(tensors[i].tensor);
    WEFT_CHECK(::fsync(file.descriptor()) == 0, kSave, path, ": expected to sync, got: ", reason());
    WEFT_CHECK(file.close(), kSave, path, ": expected to close, got: ", reason());
    WEFT_CHECK(std::rename(temporary.c_str(), path.c_str()) == 0, kSave, path,
               ": expected to rename ", temporary, ", got: ", reason());
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder_of(path);
}

std::vector<NamedTensor> load_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < file.entries().size(); ++i)
    tensors.push_back({file.entries()[i].name, file.read(i)});
  return tensors;
}

std::vector<std::pair<std::string, std::string>> load_safetensors_metadata(
    const std::string& path) {
  return SafetensorsFile(path).metadata();
}

std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name) {
  const uint64_t length = detail::header_length(bytes.data(), bytes.size(), name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + detail::kLengthBytes,
                              length);
  const std::span<const std::byte> data = bytes.subspan(detail::kLengthBytes + length);
  const auto read = [&](void* to, int64_t offset, int64_t count) {
    if (count > 0) std::memcpy(to, data.data() + offset, static_cast<size_t>(count));
  };
  return read_tensors(detail::parse_header(text, data.size(), name), read, name);
}

}  // namespace weft
