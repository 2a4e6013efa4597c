// Packed images: a folder decoded once, into one file of u8 images of one size that is mapped, not
// read. An epoch over it takes no decoding and, once the file is in memory, no reading.
//
// The file, little-endian: a page of 4096 bytes that begins with the header
//   "WEFTPACK", u32 version 1, u32 CRC of the header (with 0 here), u64 images, u32 height, width,
//   channels, classes, u64 bytes of names, u32 CRC of all tables, u32 0;
// then the images, [N, H, W, C] bytes; then the tables: names of the classes (a line each), i32
// label of each image, u32 CRC of each image. Every CRC is CRC32C.
#pragma once

#include "core/function.h"
#include "data/image_folder.h"
#include "data/images.h"

#include <string>
#include <vector>

namespace weft::data {

struct PackOptions {
  // Images are cut and resized as Crop says (whole or centre), rounded to bytes.
  int64_t height = 256;
  int64_t width = 256;
  Crop crop = Crop::centre;
  // Under BadFile::skip, an image that cannot be read is left out; under zero it is black.
  ImageFolderOptions folder = {};
  // Told now and then how many images of how many are done.
  Function<void(int64_t done, int64_t all)> progress = {};
};

struct PackResult {
  int64_t images = 0;
  int64_t classes = 0;
  std::vector<std::string> failures;  // why images are left out or black
};

// Packs the folder `root` into the file `path`, which is there whole or not at all. Decodes on
// num_threads() threads.
PackResult pack_folder(const std::string& root, const std::string& path,
                       const PackOptions& options = {});

// A packed file, open.
class PackedImages {
 public:
  // Header, size of the file and tables are checked; the images' own checksums are only by
  // damage(). Errors name path and reason.
  explicit PackedImages(const std::string& path);

  int64_t size() const { return pixels_.size(0); }
  const std::vector<std::string>& classes() const { return classes_; }
  // u8 [N, C, H, W] stored N, H, W, C: the mapped file, not to be written. i32 [N].
  const Tensor& pixels() const { return pixels_; }
  const Tensor& labels() const { return labels_; }
  // A data set of them; it keeps the file mapped.
  Images images(ImageOptions options = {}) const {
    return {pixels_, labels_, options, static_cast<int64_t>(classes_.size())};
  }
  // Reads all images; says which are not as they were written.
  std::vector<int64_t> damage() const;

 private:
  Tensor pixels_;
  Tensor labels_;
  std::vector<uint32_t> checksums_;
  std::vector<std::string> classes_;
};

}  // namespace weft::data
