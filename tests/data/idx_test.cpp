#include "data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>

namespace weft::data {
namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values)
    bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string gzip(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(plain.size() + 128, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

Tensor parse(const std::string& bytes) {
  return parse_idx(std::as_bytes(std::span(bytes)), "test.idx");
}

std::string error_of(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const std::string kImages =
    bytes_of({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255});

TEST(Idx, ReadsBytes) {
  const Tensor images = parse(kImages);
  EXPECT_EQ(images.shape(), Shape({2, 1, 3}));
  EXPECT_EQ(images.dtype(), u8);
  EXPECT_EQ(images.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 5, 255}));
}

TEST(Idx, ReadsGzippedByItsFirstBytes) {
  EXPECT_EQ(parse(gzip(kImages)).to_vector<int64_t>(), parse(kImages).to_vector<int64_t>());
}

TEST(Idx, ReadsWiderTypesBigEndian) {
  EXPECT_EQ(parse(bytes_of({0, 0, 9, 1, 0, 0, 0, 2, 255, 1})).to_vector<int64_t>(),
            (std::vector<int64_t>{-1, 1}));
  EXPECT_EQ(parse(bytes_of({0, 0, 11, 1, 0, 0, 0, 2, 255, 254, 1, 0})).to_vector<int64_t>(),
            (std::vector<int64_t>{-2, 256}));
  EXPECT_EQ(parse(bytes_of({0, 0, 12, 1, 0, 0, 0, 1, 0, 1, 0, 0})).to_vector<int64_t>(),
            std::vector<int64_t>{65536});
  const Tensor real = parse(bytes_of({0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0}));
  EXPECT_EQ(real.dtype(), f32);
  EXPECT_EQ(real.item(), 1.5);
  const Tensor twice = parse(bytes_of({0, 0, 14, 1, 0, 0, 0, 1, 0xc0, 0x04, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(twice.dtype(), f64);
  EXPECT_EQ(twice.item(), -2.5);
}

TEST(Idx, ReadsNothingOfSizeZero) {
  EXPECT_EQ(parse(bytes_of({0, 0, 8, 1, 0, 0, 0, 0})).numel(), 0);
}

TEST(Idx, NamesFileOffsetAndReason) {
  EXPECT_EQ(error_of(""), "[read_idx] test.idx at byte 0: expected 4 bytes of magic number, got 0");
  EXPECT_EQ(error_of(bytes_of({1, 0, 8, 1})),
            "[read_idx] test.idx at byte 4: expected an IDX file, which starts with two zero "
            "bytes, got 1 and 0");
  EXPECT_EQ(
      error_of(bytes_of({0, 0, 10, 1})),
      "[read_idx] test.idx at byte 4: expected an IDX type of 8, 9, 11, 12, 13 or 14, got 10");
  EXPECT_EQ(error_of(bytes_of({0, 0, 8, 9})),
            "[read_idx] test.idx at byte 4: expected 1 to 8 dims, got 9");
  EXPECT_EQ(error_of(bytes_of({0, 0, 8, 2, 0, 0, 0, 1, 0})),
            "[read_idx] test.idx at byte 9: expected 4 bytes of dim size, got 1");
  EXPECT_EQ(
      error_of(kImages + "x"),
      "[read_idx] test.idx at byte 16: expected 6 bytes of values for sizes [2, 1, 3], got 7");
}

TEST(Idx, RefusesClaimsBeforeAllocating) {
  // 2^32-1 cubed overflows; 2^31 values in a file of 12 bytes cannot be.
  const std::string huge =
      bytes_of({0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255});
  EXPECT_NE(error_of(huge).find("whose product fits in memory"), std::string::npos);
  const std::string large = bytes_of({0, 0, 8, 1, 128, 0, 0, 0, 1, 2, 3, 4});
  const int64_t peak = current_ledger().peak_total();
  EXPECT_NE(error_of(large).find("expected 2147483648 bytes of values"), std::string::npos);
  EXPECT_NE(error_of(gzip(large)).find("got at most"), std::string::npos);
  EXPECT_EQ(current_ledger().peak_total(), peak);
}

TEST(Idx, EveryTruncationAndEveryDamagedByteOfGzipIsNoticed) {
  const std::string whole = gzip(kImages);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of(whole.substr(0, size)), "no error") << size;
  int same = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    // The gzip header's time, flags and system bytes carry no data; everything else is guarded.
    if (error_of(damaged) == "no error") ++same;
  }
  EXPECT_LE(same, 7);
  EXPECT_NE(error_of(whole + "x"), "no error");
}

TEST(Idx, ReadsFilesAndSaysWhatIsWrongWithThem) {
  const std::string path = testing::TempDir() + "/weft_idx_test.idx";
  std::ofstream(path, std::ios::binary) << kImages;
  EXPECT_EQ(read_idx(path).numel(), 6);
  EXPECT_THROW(read_idx(path + ".missing"), Error);
  EXPECT_THROW(read_idx(testing::TempDir()), Error);
}

}  // namespace
}  // namespace weft::data
