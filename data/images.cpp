#include "data/images.h"

#include "core/parallel.h"
#include "core/random.h"
#include "data/detail/batches.h"
#include "data/detail/sample_transform.h"
#include "data/idx.h"
#include "ops/copy.h"

#include <unistd.h>

#include <algorithm>

namespace weft::data {
namespace {

constexpr int64_t kGatherGrain = 64;  // samples a thread takes at least

Shape images_shape(const Tensor& images) {
  Shape shape = images.shape();
  if (shape.dims() == 3) shape.insert(1, 1);
  return shape;
}

ImageOptions sized(ImageOptions options, const Shape& shape) {
  if (options.height == 0) options.height = shape[2];
  if (options.width == 0) options.width = shape[3];
  return options;
}

}  // namespace

Images::Images(Tensor images, const Tensor& labels, ImageOptions options, int64_t classes)
    : images_(std::move(images)), classes_(classes) {
  const bool sound = images_.defined() && images_.dtype() == u8 &&
                     ((images_.dims() == 3 && images_.is_contiguous()) ||
                      (images_.dims() == 4 && images_.is_channels_last() &&
                       (images_.size(1) == 1 || images_.size(1) == 3)));
  WEFT_CHECK(sound, "images",
             "expected contiguous u8 images [N, H, W] or channels-last [N, 1 or 3, H, W], got ",
             images_.defined() ? to_string(images_.dtype()) + to_string(images_.shape()) : "none");
  WEFT_CHECK(labels.defined() && labels.dims() == 1 &&
                 (labels.dtype() == u8 || labels.dtype() == i32 || labels.dtype() == i64),
             "images", "expected labels of u8, i32 or i64 [N], got ",
             labels.defined() ? to_string(labels.dtype()) + to_string(labels.shape()) : "none");
  WEFT_CHECK(images_.size(0) == labels.size(0), "images", "expected one label an image, got ",
             images_.size(0), " images and ", labels.size(0), " labels");
  const Shape shape = images_shape(images_);
  WEFT_CHECK(shape[2] >= 1 && shape[3] >= 1, "images", "expected images with pixels, got ", shape);
  channels_ = shape[1];
  options_ = detail::SampleTransform(sized(options, shape), channels_).options();
  const CategoryScope category(Category::data);
  labels_ = contiguous(to(labels, i64));
  const int64_t* label = labels_.data<int64_t>();
  for (int64_t i = 0; i < size(); ++i) {
    WEFT_CHECK(label[i] >= 0 && (classes == 0 || label[i] < classes), "images",
               "expected labels in [0, ", classes, "), got ", label[i], " for image ", i);
    classes_ = std::max(classes_, label[i] + 1);
  }
}

std::string Images::identity() const {
  return detail::identity_of("labels", labels_.data<int64_t>(),
                             static_cast<size_t>(size()) * sizeof(int64_t));
}

Batch Images::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const {
  detail::check_indices(indices, size());
  Batch batch = detail::image_batch(sample_shape(), static_cast<int64_t>(indices.size()), rows);
  const Shape shape = images_shape(images_);
  const int64_t height = shape[2];
  const int64_t width = shape[3];
  const int64_t bytes = channels_ * height * width;
  const int64_t values = sample_shape().numel();
  const uint8_t* images = images_.data<uint8_t>();
  const int64_t* labels = labels_.data<int64_t>();
  float* inputs = batch.inputs.data<float>();
  int64_t* targets = batch.targets.data<int64_t>();
  const detail::SampleTransform transform(options_, channels_);
  const int64_t grain = transform.only_copies(height, width) ? kGatherGrain : 1;
  parallel_for(0, batch.count, grain, [&](int64_t begin, int64_t end) {
    detail::TransformScratch scratch;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = indices[static_cast<size_t>(row)];
      targets[row] = labels[index];
      detail::Draws draws(key, index);
      const detail::Cut cut = transform.cut(height, width, draws);
      const detail::PixelView view =
          detail::view_of_cut(images + index * bytes, width * channels_, channels_, cut);
      transform.run(view, draws, scratch, inputs + row * values);
    }
  });
  return batch;
}

Images read_mnist(const std::string& folder, bool train, ImageOptions options) {
  const std::string prefix = folder + (train ? "/train" : "/t10k");
  const auto read = [](const std::string& path) {
    return read_idx(access(path.c_str(), F_OK) == 0 ? path : path + ".gz");
  };
  return {read(prefix + "-images-idx3-ubyte"), read(prefix + "-labels-idx1-ubyte"), options};
}

Synthetic::Synthetic(int64_t size, const Shape& sample_shape, int64_t classes, uint64_t seed)
    : size_(size), shape_(sample_shape), classes_(classes), seed_(seed) {
  WEFT_CHECK(size >= 0 && classes >= 1, "synthetic",
             "expected a size of 0 or more and at least one class, got ", size, " and ", classes);
  checked_numel(sample_shape, size_of(f32), "synthetic");
}

std::string Synthetic::identity() const {
  return concat({"seed ", seed_, ", ", classes_, " classes"});
}

Batch Synthetic::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey&) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch = shape_.dims() == 3 ? detail::image_batch(shape_, count, rows)
                                   : detail::plain_batch(shape_, count, rows);
  const int64_t width = shape_.numel();
  for (size_t row = 0; row < indices.size(); ++row) {
    const auto index = static_cast<uint64_t>(indices[row]);
    fill_uniform({.seed = seed_, .step = index, .shard = 0, .stream = 0}, 0,
                 batch.inputs.data<float>() + static_cast<int64_t>(row) * width, width);
    batch.targets.data<int64_t>()[row] =
        static_cast<int64_t>(random_below({.seed = seed_, .step = index, .shard = 0, .stream = 1},
                                          0, static_cast<uint64_t>(classes_)));
  }
  return batch;
}

}  // namespace weft::data
