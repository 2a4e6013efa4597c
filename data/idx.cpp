#include "data/idx.h"

#include "data/detail/file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace weft::data {
namespace {

// Deflate expands to at most 1032 times its input (zlib's technical notes), which bounds what a
// gzipped file of a given size can hold.
constexpr int64_t kDeflateRatio = 1032;

// Where the bytes after the gzip layer come from, if there is one.
class Source {
 public:
  Source(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {
    zipped_ = bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
    if (!zipped_) return;
    WEFT_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "read_idx",
               "expected zlib to start, got a failure");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source() {
    if (zipped_) inflateEnd(&stream_);
  }

  // The most bytes that can still come, known before they are read.
  int64_t bound() const {
    const auto size = static_cast<int64_t>(bytes_.size());
    return zipped_ ? size * kDeflateRatio : size - offset_;
  }
  bool zipped() const { return zipped_; }

  void read(std::byte* to, int64_t count, const char* what) {
    int64_t done = 0;
    if (zipped_) {
      done = inflate_some(to, count);
    } else {
      done = std::min(count, static_cast<int64_t>(bytes_.size()) - offset_);
      if (done > 0) std::memcpy(to, bytes_.data() + offset_, static_cast<size_t>(done));
    }
    offset_ += done;
    if (done < count) fail({"expected ", count, " bytes of ", what, ", got ", done});
  }

  // Reads the end of the gzip layer (its checksum) and refuses further bytes.
  void finish() {
    std::byte extra{};
    if (zipped_) {
      if (inflate_some(&extra, 1) != 0 || !ended_)
        fail({"expected the end of the data, got more bytes"});
      const auto left = static_cast<int64_t>(bytes_.size()) - consumed();
      if (left != 0)
        fail({"expected the end of the file after the gzip data, got ", left, " more bytes"});
    } else if (offset_ != static_cast<int64_t>(bytes_.size())) {
      fail({"expected the end of the file, got ", static_cast<int64_t>(bytes_.size()) - offset_,
            " more bytes"});
    }
  }

  [[noreturn]] void fail(std::initializer_list<Piece> reason) const {
    throw_error("read_idx", {name_, " at byte ", offset_,
                             zipped_ ? " of the unzipped data: " : ": ", concat(reason)});
  }

 private:
  int64_t consumed() const {
    return reinterpret_cast<const std::byte*>(stream_.next_in) - bytes_.data();
  }

  int64_t inflate_some(std::byte* to, int64_t count) {
    int64_t done = 0;
    while (done < count && !ended_) {
      constexpr int64_t kChunk = int64_t{1} << 30;  // zlib counts in 32 bits
      const auto in =
          static_cast<uInt>(std::min(kChunk, static_cast<int64_t>(bytes_.size()) - consumed()));
      const auto out = static_cast<uInt>(std::min(kChunk, count - done));
      stream_.avail_in = in;
      stream_.next_out = reinterpret_cast<Bytef*>(to + done);
      stream_.avail_out = out;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += out - stream_.avail_out;
      ended_ = code == Z_STREAM_END;
      if (code == Z_BUF_ERROR ||
          (code == Z_OK && in == stream_.avail_in && out == stream_.avail_out))
        break;
      if (code != Z_OK && !ended_) {
        fail({"expected sound gzip data, got '", stream_.msg ? stream_.msg : "a damaged stream",
              "'"});
      }
    }
    return done;
  }

  std::span<const std::byte> bytes_;
  std::string name_;
  int64_t offset_ = 0;
  bool zipped_ = false;
  bool ended_ = false;
  z_stream stream_{};
};

uint32_t big_endian(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i)
    value = value << 8 | std::to_integer<uint32_t>(at[i]);
  return value;
}

template <class S, class T>
void decode(std::span<const std::byte> raw, const Tensor& out) {
  T* values = out.data<T>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    std::array<std::byte, sizeof(S)> bytes;
    for (size_t k = 0; k < sizeof(S); ++k)
      bytes[sizeof(S) - 1 - k] = raw[static_cast<size_t>(i) * sizeof(S) + k];
    values[i] = static_cast<T>(std::bit_cast<S>(bytes));
  }
}

struct Kind {
  int64_t width;
  DType dtype;
  void (*decode)(std::span<const std::byte>, const Tensor&);
};

Kind kind_of(const Source& source, int code) {
  switch (code) {
    case 0x08:
      return {1, u8, nullptr};
    case 0x09:
      return {1, i32, decode<int8_t, int32_t>};
    case 0x0b:
      return {2, i32, decode<int16_t, int32_t>};
    case 0x0c:
      return {4, i32, decode<int32_t, int32_t>};
    case 0x0d:
      return {4, f32, decode<float, float>};
    case 0x0e:
      return {8, f64, decode<double, double>};
    default:
      source.fail({"expected an IDX type of 8, 9, 11, 12, 13 or 14, got ", code});
  }
}

}  // namespace

Tensor parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  Source source(bytes, name);
  std::array<std::byte, 4> magic;
  source.read(magic.data(), 4, "magic number");
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
    source.fail({"expected an IDX file, which starts with two zero bytes, got ",
                 std::to_integer<int>(magic[0]), " and ", std::to_integer<int>(magic[1])});
  }
  const Kind kind = kind_of(source, std::to_integer<int>(magic[2]));
  const int dims = std::to_integer<int>(magic[3]);
  if (dims < 1 || dims > kMaxDims) source.fail({"expected 1 to 8 dims, got ", dims});
  Shape shape;
  for (int i = 0; i < dims; ++i) {
    std::array<std::byte, 4> size;
    source.read(size.data(), 4, "dim size");
    shape.push_back(big_endian(size.data()));
  }
  int64_t claimed = 0;
  try {
    claimed = checked_numel(shape, kind.width, "read_idx") * kind.width;
  } catch (const Error&) {
    source.fail({"expected sizes whose product fits in memory, got ", shape});
  }
  if (source.zipped() ? claimed > source.bound() : claimed != source.bound()) {
    source.fail({"expected ", claimed, " bytes of values for sizes ", shape, ", got ",
                 source.zipped() ? "at most " : "", source.bound()});
  }

  const Tensor values = empty(shape, {.dtype = kind.dtype});
  if (!kind.decode) {
    source.read(values.raw(), claimed, "values");
  } else {
    std::vector<std::byte> raw(static_cast<size_t>(claimed));
    source.read(raw.data(), claimed, "values");
    kind.decode(raw, values);
  }
  source.finish();
  return values;
}

Tensor read_idx(const std::string& path) {
  const CategoryScope category(Category::data);
  const std::vector<std::byte> bytes = detail::read_file("read_idx", path);
  return parse_idx(bytes, path);
}

}  // namespace weft::data
