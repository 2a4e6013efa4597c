// A folder of images, in which every folder is a class: ROOT/CLASS/…/IMAGE.
//
// Classes are numbered in the order of their names' bytes (for UTF-8, that of code points: what
// Python's sorted() gives, so "10" comes before "2"); samples are in the order of their classes,
// then of their paths, folder by folder. Names are bytes; any but those with a line feed will do.
// Folders inside a class are gone through, symbolic links to folders and files followed; a folder
// that a link leads back into from inside itself is gone through once. Names that begin with a dot
// are left out everywhere, and so is what lies beside the class folders.
//
// A file is a sample if it is called .jpg, .jpeg or .png in any case, or begins as a JPEG or PNG
// does; what it is, its content decides. So notes.txt is none, photo.dat may be one, and an empty
// cat.jpg is one that fails.
#pragma once

#include "data/dataset.h"
#include "data/image_file.h"
#include "data/transform.h"

#include <string>
#include <vector>

namespace weft::data {

// What becomes of a sample whose file cannot be read or decoded: missing, empty, cut off, damaged
// in the pixels that are wanted, too large, neither JPEG nor PNG. A process that runs out of memory
// or of descriptors fails under every policy: that says nothing about the file.
enum class BadFile : uint8_t {
  fail,  // an Error that names sample, file, byte and reason
  skip,  // its row is zero and has no target, so its own loss is none. It is still one of the rows
         // that BatchNorm sees, and of the samples by which a training step's mean divides
  zero,  // its row is zero, its target stays
};
BadFile bad_file_from_name(const std::string& name);

// What becomes of a class folder without a sample. Classes are never renumbered.
enum class EmptyClass : uint8_t { fail, keep };

struct ImageFolderOptions {
  int64_t channels = 3;  // or 1: grey
  BadFile bad_files = BadFile::fail;
  // At most so many samples may fail in one process under skip and zero; one more is an Error.
  int64_t bad_limit = 1000;
  EmptyClass empty_classes = EmptyClass::fail;
  // The classes there are, in their order, as another folder of the same set has them: the
  // validation images get the numbers of the training images. A folder that is not among them is an
  // Error, one that is missing counts as empty. None: those of the folder.
  std::vector<std::string> classes = {};
  int64_t max_pixels = kMaxPixels;
};

// gather() decodes on num_threads() threads and holds, besides the batch, an image and its file for
// each.
class ImageFolder final : public Dataset {
 public:
  // images.height and images.width must be given. Lists the folder, reads no image.
  ImageFolder(const std::string& root, ImageOptions images, ImageFolderOptions options = {});
  ~ImageFolder() override;
  ImageFolder(const ImageFolder&) = delete;
  ImageFolder& operator=(const ImageFolder&) = delete;

  int64_t size() const override;
  Shape sample_shape() const override;
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

  // Their names, by number.
  const std::vector<std::string>& classes() const;
  int64_t label(int64_t index) const;
  std::string path(int64_t index) const;
  std::string identity() const override;  // of classes, paths below the root, and labels

  // The samples that have failed so far, in order of their index.
  struct Failure {
    int64_t index;
    std::string reason;  // with the path
  };
  std::vector<Failure> failures() const;

 private:
  struct State;
  class Lease;
  Ref<State> state_;
};

// The names, a line each, so that number = line - 1, written whole or not at all; and back, at
// least one. A file that an editor of Windows has saved (a byte-order mark, lines that all end in a
// carriage return) gives the same names.
void save_classes(const std::string& path, const std::vector<std::string>& classes);
std::vector<std::string> load_classes(const std::string& path);

}  // namespace weft::data
