#include "data/cifar.h"

#include "data/detail/file.h"

#include <unistd.h>

#include <vector>

namespace weft::data {
namespace {

constexpr const char* kReadCifar = "read_cifar";
constexpr int64_t kSide = 32;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kChannels = 3;

struct Layout {
  int64_t labels;  // bytes of labels before the pixels
  int64_t label;   // which of them counts
  int classes;
  const char* archive;
};

Layout layout_of(Cifar kind) {
  switch (kind) {
    case Cifar::hundred:
      return {2, 1, 100, "cifar-100-binary"};
    case Cifar::hundred_coarse:
      return {2, 0, 20, "cifar-100-binary"};
    default:
      return {1, 0, 10, "cifar-10-batches-bin"};
  }
}

}  // namespace

CifarRecords parse_cifar(std::span<const std::byte> bytes, const std::string& name, Cifar kind) {
  const Layout layout = layout_of(kind);
  const int64_t record = layout.labels + kChannels * kPixels;
  const auto size = static_cast<int64_t>(bytes.size());
  WEFT_CHECK(size > 0 && size % record == 0, kReadCifar, name, ": expected whole records of ",
             record, " bytes, got ", size, " bytes");
  const int64_t count = size / record;
  const CategoryScope category(Category::data);
  const Shape shape = {count, kChannels, kSide, kSide};
  CifarRecords records{empty_strided(shape, channels_last_strides(shape), {.dtype = u8}),
                       empty({count}, {.dtype = u8})};
  auto* pixels = records.images.data<uint8_t>();
  auto* labels = records.labels.data<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data()) + i * record;
    labels[i] = from[layout.label];
    WEFT_CHECK(labels[i] < layout.classes, kReadCifar, name, " at byte ", i * record + layout.label,
               ", record ", i, ": expected a label below ", layout.classes, ", got ",
               int{labels[i]});
    from += layout.labels;
    uint8_t* to = pixels + i * kChannels * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) {
      for (int64_t c = 0; c < kChannels; ++c)
        to[p * kChannels + c] = from[c * kPixels + p];
    }
  }
  return records;
}

Images read_cifar(const std::string& folder, Cifar kind, bool train, ImageOptions options) {
  const Layout layout = layout_of(kind);
  std::vector<std::string> names;
  if (kind == Cifar::ten && train) {
    for (int i = 1; i <= 5; ++i)
      names.push_back("/data_batch_" + std::to_string(i) + ".bin");
  } else {
    names.emplace_back(kind == Cifar::ten ? "/test_batch.bin" : train ? "/train.bin" : "/test.bin");
  }
  const std::string inner = folder + "/" + layout.archive;
  const std::string place =
      access((folder + names[0]).c_str(), F_OK) != 0 && access(inner.c_str(), F_OK) == 0 ? inner
                                                                                         : folder;
  std::vector<std::byte> all;
  for (const std::string& name : names) {
    const std::vector<std::byte> bytes = detail::read_file(kReadCifar, place + name);
    // Each file by itself, so that an error names it.
    if (names.size() > 1) parse_cifar(bytes, place + name, kind);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  const CifarRecords records = parse_cifar(all, place + names[0], kind);
  return {records.images, records.labels, options, layout.classes};
}

}  // namespace weft::data
