// Labelled u8 images held in memory, or mapped from a file: MNIST and its relatives, CIFAR, packed
// folders. A batch is gathered, augmented and normalised from bytes to f32.
#pragma once

#include "data/dataset.h"
#include "data/transform.h"

#include <string>

namespace weft::data {

class Images final : public Dataset {
 public:
  // images: u8 [N, H, W] or, with 1 or 3 channels, [N, C, H, W] stored N, H, W, C. labels: u8, i32
  // or i64 [N], from 0. classes: how many there are, 0 for the highest label + 1. Batches are f32
  // [rows, C, height, width] stored N, H, W, C.
  Images(Tensor images, const Tensor& labels, ImageOptions options = {}, int64_t classes = 0);

  int64_t size() const override { return images_.size(0); }
  Shape sample_shape() const override { return {channels_, options_.height, options_.width}; }
  std::string identity() const override;  // of the labels
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

  int64_t classes() const { return classes_; }
  // The same images under other options.
  Images with(ImageOptions options) const { return {images_, labels_, options, classes_}; }

 private:
  Tensor images_;
  Tensor labels_;  // i64
  ImageOptions options_;
  int64_t channels_ = 1;
  int64_t classes_ = 0;
};

// Reads `folder`/{train|t10k}-images-idx3-ubyte and …-labels-idx1-ubyte, plain or with .gz.
// Mean and stddev of the options are used as given.
Images read_mnist(const std::string& folder, bool train, ImageOptions options = {});

// Samples made from their index: for benchmarks and tests. Inputs are uniform in [0, 1), and stored
// N, H, W, C where they are [C, H, W]; targets are in [0, classes).
class Synthetic final : public Dataset {
 public:
  Synthetic(int64_t size, const Shape& sample_shape, int64_t classes, uint64_t seed = 0);

  int64_t size() const override { return size_; }
  Shape sample_shape() const override { return shape_; }
  std::string identity() const override;
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

 private:
  int64_t size_;
  Shape shape_;
  int64_t classes_;
  uint64_t seed_;
};

}  // namespace weft::data
