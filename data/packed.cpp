#include "data/packed.h"

#include "core/crc32c.h"
#include "core/parallel.h"
#include "data/detail/file_writer.h"
#include "data/detail/names.h"
#include "data/detail/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::data {
namespace {

constexpr int64_t kImagesAtOnce = 64;

// Maps a whole file to be read; `bytes` becomes its size.
void* map_file(const std::string& path, size_t& bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  WEFT_CHECK(file >= 0, detail::kPacked, "expected a readable file, got ", path, ": ",
             std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  bytes = regular ? static_cast<size_t>(status.st_size) : 0;
  void* at = regular ? mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  const int reason = errno;
  close(file);
  WEFT_CHECK(regular, detail::kPacked, "expected a file of packed images, got ", path,
             ", which is empty or no file");
  WEFT_CHECK(at != MAP_FAILED, detail::kPacked, path,
             ": expected to map it, got: ", std::strerror(reason));
  return at;
}

}  // namespace

PackResult pack_folder(const std::string& root, const std::string& path,
                       const PackOptions& options) {
  WEFT_CHECK(options.crop != Crop::random, detail::kPacked,
             "expected to cut the whole or the centre, got random");
  const ImageFolder folder(root,
                           {.height = options.height,
                            .width = options.width,
                            .crop = options.crop,
                            .stddev = 1.0 / 255},  // values are bytes
                           options.folder);
  detail::FileWriter file(detail::kPacked, path);
  const std::vector<std::byte> page(detail::kPackedPage);
  file.write(page.data(), page.size());
  std::vector<int32_t> labels;
  std::vector<uint32_t> checksums;
  const int64_t values = folder.sample_shape().numel();
  std::vector<uint8_t> bytes(static_cast<size_t>(values));
  for (int64_t first = 0; first < folder.size(); first += kImagesAtOnce) {
    std::vector<int64_t> indices;
    for (int64_t i = first; i < std::min(folder.size(), first + kImagesAtOnce); ++i)
      indices.push_back(i);
    const auto count = static_cast<int64_t>(indices.size());
    const Batch batch = folder.gather(indices, count, {});
    for (int64_t row = 0; row < count; ++row) {
      const int64_t target = batch.targets.data<int64_t>()[row];
      if (target == kNoTarget) continue;
      const float* from = batch.inputs.data<float>() + row * values;
      std::transform(from, from + values, bytes.data(), [](float value) {
        return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f) + 0.5f);
      });
      file.write(bytes.data(), bytes.size());
      labels.push_back(static_cast<int32_t>(target));
      checksums.push_back(crc32c(bytes.data(), bytes.size()));
    }
    if (options.progress) options.progress(first + count, folder.size());
  }
  PackResult result{
      static_cast<int64_t>(labels.size()), static_cast<int64_t>(folder.classes().size()), {}};
  for (const ImageFolder::Failure& failure : folder.failures())
    result.failures.push_back(failure.reason);
  WEFT_CHECK(!labels.empty(), detail::kPacked, "expected images that can be read in ", root,
             ", got none");
  const std::string names = detail::join_names(detail::kPacked, folder.classes());
  file.write(names.data(), names.size());
  file.write(labels.data(), 4 * labels.size());
  file.write(checksums.data(), 4 * checksums.size());
  uint32_t crc = crc32c(names.data(), names.size());
  crc = crc32c(labels.data(), 4 * labels.size(), crc);
  crc = crc32c(checksums.data(), 4 * checksums.size(), crc);
  const auto header =
      detail::packed_header({.images = labels.size(),
                             .height = static_cast<uint32_t>(options.height),
                             .width = static_cast<uint32_t>(options.width),
                             .channels = static_cast<uint32_t>(options.folder.channels),
                             .classes = static_cast<uint32_t>(result.classes),
                             .names_bytes = names.size(),
                             .tables_crc = crc});
  file.write_at(header.data(), header.size(), 0);
  file.commit();
  return result;
}

PackedImages::PackedImages(const std::string& path) {
  size_t bytes = 0;
  void* at = map_file(path, bytes);
  const Ref<Storage> storage =
      Storage::wrap(at, static_cast<int64_t>(bytes), [at, bytes] { munmap(at, bytes); });
  detail::PackedParts parts =
      detail::parse_packed({static_cast<const std::byte*>(at), bytes}, path);
  const detail::PackedHeader& header = parts.header;
  const Shape shape = {static_cast<int64_t>(header.images), header.channels, header.height,
                       header.width};
  pixels_ = view_of(storage, detail::kPackedPage, shape, channels_last_strides(shape), u8);
  const CategoryScope category(Category::data);
  labels_ = from_values(parts.labels);
  checksums_ = std::move(parts.checksums);
  classes_ = std::move(parts.classes);
}

std::vector<int64_t> PackedImages::damage() const {
  const int64_t bytes = pixels_.numel() / size();
  const auto* pixels = pixels_.data<uint8_t>();
  std::vector<uint8_t> damaged(static_cast<size_t>(size()));
  parallel_for(0, size(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t crc = crc32c(pixels + i * bytes, static_cast<size_t>(bytes));
      damaged[static_cast<size_t>(i)] = crc != checksums_[static_cast<size_t>(i)];
    }
  });
  std::vector<int64_t> list;
  for (int64_t i = 0; i < size(); ++i) {
    if (damaged[static_cast<size_t>(i)]) list.push_back(i);
  }
  return list;
}

}  // namespace weft::data
