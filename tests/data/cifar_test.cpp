#include "data/cifar.h"

#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::data {
namespace {

using test::Bytes;
using testing::HasSubstr;

// Records whose labels count up, and whose bytes tell record, channel and pixel.
Bytes records(int count, int labels, int classes, int first = 0) {
  Bytes bytes;
  for (int i = first; i < first + count; ++i) {
    for (int k = 0; k < labels; ++k)
      bytes.push_back(static_cast<std::byte>((i + k) % classes));
    for (int p = 0; p < 3072; ++p)
      bytes.push_back(static_cast<std::byte>((i * 7 + p / 1024 * 50 + p % 1024) & 0xff));
  }
  return bytes;
}

TEST(Cifar, ReadsPlanesAsPixels) {
  const CifarRecords ten = parse_cifar(records(3, 1, 10), "ten", Cifar::ten);
  EXPECT_EQ(ten.images.shape(), Shape({3, 3, 32, 32}));
  EXPECT_TRUE(ten.images.is_channels_last());
  EXPECT_EQ(ten.labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  const auto values = ten.images.to_vector<int64_t>();  // N, C, H, W
  for (size_t i = 0; i < values.size(); ++i) {
    const auto p = static_cast<int64_t>(i % 3072);
    EXPECT_EQ(values[i], (static_cast<int64_t>(i / 3072) * 7 + p / 1024 * 50 + p % 1024) & 0xff);
  }
  const Bytes hundred = records(2, 2, 20, 3);
  EXPECT_EQ(parse_cifar(hundred, "h", Cifar::hundred).labels.to_vector<int64_t>(),
            (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(parse_cifar(hundred, "h", Cifar::hundred_coarse).labels.to_vector<int64_t>(),
            (std::vector<int64_t>{3, 4}));
}

TEST(Cifar, SizesAndLabelsAreChecked) {
  const auto error = [](const Bytes& bytes, Cifar kind) {
    return test::error_of([&] { parse_cifar(bytes, "batch.bin", kind); });
  };
  Bytes bytes = records(2, 1, 10);
  EXPECT_THAT(error({}, Cifar::ten), HasSubstr("batch.bin: expected whole records of 3073 bytes"));
  EXPECT_THAT(error(bytes, Cifar::hundred), HasSubstr("got 6146 bytes"));
  bytes[3073] = std::byte{10};
  EXPECT_THAT(error(bytes, Cifar::ten),
              HasSubstr("at byte 3073, record 1: expected a label below 10"));
  bytes.pop_back();
  EXPECT_THAT(error(bytes, Cifar::ten), HasSubstr("got 6145 bytes"));
}

TEST(Cifar, ReadsTheFilesOfTheArchive) {
  const test::TemporaryDirectory folder;
  const std::string inner = folder / "cifar-10-batches-bin";
  std::filesystem::create_directory(inner);
  for (int i = 1; i <= 5; ++i)
    test::write_file(inner + "/data_batch_" + std::to_string(i) + ".bin", records(2, 1, 10, 2 * i));
  test::write_file(inner + "/test_batch.bin", records(1, 1, 10));
  for (const std::string& place : {folder.path(), inner}) {
    const Images images = read_cifar(place, Cifar::ten, true, {.flip = true, .shift = 4});
    EXPECT_EQ(images.size(), 10);
    EXPECT_EQ(images.classes(), 10);
    EXPECT_EQ(images.sample_shape(), Shape({3, 32, 32}));
    const std::vector<int64_t> last = {9};
    EXPECT_EQ(images.gather(last, 1, {}).targets.item_int(), 1);
    EXPECT_EQ(read_cifar(place, Cifar::ten, false).size(), 1);
  }
  test::write_file(inner + "/data_batch_3.bin", records(1, 2, 10));
  EXPECT_THAT(test::error_of([&] { read_cifar(inner, Cifar::ten, true); }),
              HasSubstr("data_batch_3.bin"));
  EXPECT_THROW(read_cifar(folder.path(), Cifar::hundred, true), Error);
}

}  // namespace
}  // namespace weft::data
