#include "data/image_folder.h"

#include "core/crc32c.h"
#include "data/detail/batches.h"
#include "data/detail/file.h"
#include "data/detail/file_writer.h"
#include "data/detail/image_reader.h"
#include "data/detail/names.h"
#include "data/detail/sample_transform.h"
#include "data/detail/scan_folder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

namespace weft::data {
namespace {

// No sound image has a larger file: four channels of 16 bits a pixel, and what is told beside them.
constexpr int64_t kBytesAPixel = 8;
constexpr int64_t kOtherBytes = int64_t{64} << 20;

}  // namespace

struct ImageFolder::State final : RefCounted {
  State(const std::string& folder, const ImageOptions& images, const ImageFolderOptions& given)
      : root(folder),
        options(given),
        transform(images, given.channels),
        list(detail::scan_folder(folder, given)) {}

  // What one thread decodes with.
  struct Decoder {
    std::vector<std::byte> bytes;
    detail::ImageReader reader;
    detail::TransformScratch scratch;
  };

  // Decoders are kept from batch to batch: their buffers have grown to the images' size.
  std::unique_ptr<Decoder> take_decoder() const {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Decoder>();
    std::unique_ptr<Decoder> decoder = std::move(idle.back());
    idle.pop_back();
    return decoder;
  }
  void give_back(std::unique_ptr<Decoder> decoder) const {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(decoder));
  }

  std::string path(int64_t index) const { return root + "/" + list.path(index); }

  void decode(Decoder& with, int64_t index, const EpochKey& key, float* out) const {
    const std::string name = concat({"sample ", index, ", ", path(index)});
    detail::read_file(
        detail::kImageFolder, path(index), with.bytes,
        {.name = name, .most_bytes = kBytesAPixel * options.max_pixels + kOtherBytes});
    const detail::StoredImage image = with.reader.open(with.bytes, name, options.max_pixels);
    detail::Draws draws(key, index);
    const detail::Cut cut = transform.cut(image.height, image.width, draws);
    const ImageOptions& shown = transform.options();
    const detail::PixelView view =
        with.reader.read(cut, shown.height, shown.width, options.channels);
    transform.run(view, draws, with.scratch, out);
  }

  // Notes a failure; throws if there are too many.
  void note(int64_t index, const std::string& reason) const {
    const std::lock_guard lock(mutex);
    failures.emplace(index, reason);
    const auto count = static_cast<int64_t>(failures.size());
    WEFT_CHECK(count <= options.bad_limit, detail::kImageFolder, "expected at most ",
               options.bad_limit, " samples that cannot be read, got one more: ", reason);
  }

  std::string root;
  ImageFolderOptions options;
  detail::SampleTransform transform;
  detail::FolderList list;
  mutable std::mutex mutex;
  mutable std::map<int64_t, std::string> failures;
  mutable std::vector<std::unique_ptr<Decoder>> idle;
};

// A decoder of the folder's while one thread has it.
class ImageFolder::Lease {
 public:
  explicit Lease(const State& state) : state_(&state), decoder_(state.take_decoder()) {}
  ~Lease() {
    if (decoder_) state_->give_back(std::move(decoder_));
  }
  Lease(Lease&&) noexcept = default;
  State::Decoder& operator*() const { return *decoder_; }

 private:
  const State* state_;
  std::unique_ptr<State::Decoder> decoder_;
};

BadFile bad_file_from_name(const std::string& name) {
  if (name == "fail") return BadFile::fail;
  if (name == "skip") return BadFile::skip;
  if (name == "zero") return BadFile::zero;
  throw_error(detail::kImageFolder, {"expected the policy fail, skip or zero, got ", name});
}

ImageFolder::ImageFolder(const std::string& root, ImageOptions images, ImageFolderOptions options)
    : state_(new State(root, images, options)) {}

ImageFolder::~ImageFolder() = default;

int64_t ImageFolder::size() const {
  return static_cast<int64_t>(state_->list.labels.size());
}

Shape ImageFolder::sample_shape() const {
  const ImageOptions& shown = state_->transform.options();
  return {state_->options.channels, shown.height, shown.width};
}

const std::vector<std::string>& ImageFolder::classes() const {
  return state_->list.classes;
}

int64_t ImageFolder::label(int64_t index) const {
  detail::check_indices({&index, 1}, size());
  return state_->list.labels[static_cast<size_t>(index)];
}

std::string ImageFolder::path(int64_t index) const {
  detail::check_indices({&index, 1}, size());
  return state_->path(index);
}

std::vector<ImageFolder::Failure> ImageFolder::failures() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Failure> all;
  for (const auto& [index, reason] : state_->failures)
    all.push_back({index, reason});
  return all;
}

std::string ImageFolder::identity() const {
  const detail::FolderList& list = state_->list;
  uint32_t crc = 0;
  for (const std::string& name : list.classes)
    crc = crc32c(name.c_str(), name.size() + 1, crc);
  crc = crc32c(list.paths.data(), list.paths.size(), crc);
  crc = crc32c(list.ends.data(), list.ends.size() * sizeof list.ends[0], crc);
  return detail::identity_of("files", list.labels.data(), list.labels.size() * sizeof(int32_t),
                             crc);
}

Batch ImageFolder::gather(std::span<const int64_t> indices, int64_t rows,
                          const EpochKey& key) const {
  detail::check_indices(indices, size());
  Batch batch = detail::image_batch(sample_shape(), static_cast<int64_t>(indices.size()), rows);
  const int64_t values = sample_shape().numel();
  float* inputs = batch.inputs.data<float>();
  int64_t* targets = batch.targets.data<int64_t>();
  const State& state = *state_;
  detail::each_in_turn(batch.count, [&] {
    return [&, decoder = Lease(state)](int64_t row) {
      const int64_t index = indices[static_cast<size_t>(row)];
      targets[row] = state.list.labels[static_cast<size_t>(index)];
      float* out = inputs + row * values;
      try {
        state.decode(*decoder, index, key, out);
      } catch (const OutOfMemory&) {
        throw;
      } catch (const detail::OutOfResources&) {
        throw;
      } catch (const Error& error) {
        if (state.options.bad_files == BadFile::fail) throw;
        state.note(index, error.what());
        std::fill_n(out, values, 0.0f);
        if (state.options.bad_files == BadFile::skip) targets[row] = kNoTarget;
      }
    };
  });
  return batch;
}

void save_classes(const std::string& path, const std::vector<std::string>& classes) {
  const std::string text = detail::join_names("save_classes", classes);
  detail::FileWriter file("save_classes", path);
  file.write(text.data(), text.size());
  file.commit();
}

std::vector<std::string> load_classes(const std::string& path) {
  const std::vector<std::byte> bytes = detail::read_file("load_classes", path);
  const std::string text = detail::plain_lines(
      "load_classes", path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  auto names = detail::split_names("load_classes", path, text);
  WEFT_CHECK(!names.empty(), "load_classes", path, ": expected names, got an empty file");
  return names;
}

}  // namespace weft::data
