#include "data/images.h"

#include "core/parallel.h"
#include "core/random.h"
#include "data/idx.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace weft::data {
namespace {

constexpr uint32_t kAugmentStream = 0x61756731;
constexpr int64_t kGatherGrain = 64;  // samples a thread takes at least

Batch empty_batch(const Shape& sample, int64_t count, int64_t rows) {
  WEFT_CHECK(count <= rows, "gather", "expected at most ", rows, " samples for ", rows,
             " rows, got ", count);
  const CategoryScope category(Category::data);
  Shape shape = sample;
  shape.insert(0, rows);
  Batch batch{empty(shape, {.dtype = f32}), empty({rows}, {.dtype = i64}), count};
  const int64_t width = sample.numel();
  std::fill_n(batch.inputs.data<float>() + count * width, (rows - count) * width, 0.0f);
  std::fill_n(batch.targets.data<int64_t>() + count, rows - count, kNoTarget);
  return batch;
}

// One row of an image, moved by dx and mirrored or not; `fill` comes in from the sides.
void move_row(const uint8_t* from, int64_t width, int64_t dx, bool mirror, float scale,
              float offset, float fill, float* to) {
  for (int64_t x = 0; x < width; ++x) {
    const int64_t at = (mirror ? width - 1 - x : x) - dx;
    to[x] = at >= 0 && at < width ? static_cast<float>(from[at]) * scale + offset : fill;
  }
}

}  // namespace

Images::Images(Tensor images, Tensor labels, ImageOptions options)
    : images_(std::move(images)), labels_(std::move(labels)), options_(options) {
  WEFT_CHECK(
      images_.defined() && images_.dtype() == u8 && images_.dims() == 3 && images_.is_contiguous(),
      "images", "expected contiguous u8 images [N, H, W], got ", images_.dtype(), " ",
      images_.shape());
  WEFT_CHECK(
      labels_.defined() && labels_.dtype() == u8 && labels_.dims() == 1 && labels_.is_contiguous(),
      "images", "expected contiguous u8 labels [N], got ", labels_.dtype(), " ", labels_.shape());
  WEFT_CHECK(images_.size(0) == labels_.size(0), "images", "expected one label an image, got ",
             images_.size(0), " images and ", labels_.size(0), " labels");
  WEFT_CHECK(options_.stddev > 0 && options_.shift >= 0, "images",
             "expected a positive stddev and a shift of 0 or more, got ", options_.stddev, " and ",
             options_.shift);
  const uint8_t* label = labels_.data<uint8_t>();
  for (int64_t i = 0; i < size(); ++i)
    classes_ = std::max<int64_t>(classes_, label[i] + 1);
}

Batch Images::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const {
  for (const int64_t index : indices) {
    WEFT_CHECK(index >= 0 && index < size(), "gather", "expected samples in [0, ", size(),
               "), got ", index);
  }
  Batch batch = empty_batch(sample_shape(), static_cast<int64_t>(indices.size()), rows);
  const int64_t height = images_.size(1);
  const int64_t width = images_.size(2);
  const int64_t pixels = height * width;
  const auto scale = static_cast<float>(1 / (255 * options_.stddev));
  const auto offset = static_cast<float>(-options_.mean / options_.stddev);
  const uint8_t* images = images_.data<uint8_t>();
  const uint8_t* labels = labels_.data<uint8_t>();
  float* inputs = batch.inputs.data<float>();
  int64_t* targets = batch.targets.data<int64_t>();
  const bool augment = options_.flip || options_.shift > 0;
  const RandomKey draws{.seed = key.seed, .step = key.epoch, .shard = 0, .stream = kAugmentStream};

  parallel_for(0, batch.count, kGatherGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = indices[static_cast<size_t>(row)];
      const uint8_t* from = images + index * pixels;
      float* to = inputs + row * pixels;
      targets[row] = labels[index];
      if (!augment) {
        for (int64_t i = 0; i < pixels; ++i)
          to[i] = static_cast<float>(from[i]) * scale + offset;
        continue;
      }
      const auto words = philox(draws, static_cast<uint64_t>(index));
      const bool mirror = options_.flip && (words[0] & 1) != 0;
      const auto span = static_cast<uint64_t>(2 * options_.shift + 1);
      const auto moved = [&](uint32_t word) {
        return static_cast<int64_t>(word * span >> 32) - options_.shift;
      };
      const int64_t dx = moved(words[1]);
      const int64_t dy = moved(words[2]);
      for (int64_t y = 0; y < height; ++y) {
        if (y - dy >= 0 && y - dy < height) {
          move_row(from + (y - dy) * width, width, dx, mirror, scale, offset, offset,
                   to + y * width);
        } else {
          std::fill_n(to + y * width, width, offset);
        }
      }
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

Batch Synthetic::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey&) const {
  Batch batch = empty_batch(shape_, static_cast<int64_t>(indices.size()), rows);
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
