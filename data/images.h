// Labelled u8 images held in memory: MNIST and its relatives. A batch is gathered, augmented and
// normalised in one pass from bytes to f32.
#pragma once

#include "data/dataset.h"

#include <string>

namespace weft::data {

struct ImageOptions {
  // Value = (byte / 255 - mean) / stddev.
  double mean = 0;
  double stddev = 1;
  // Augmentation: mirror left-right with probability 1/2; move by up to `shift` pixels each way,
  // filling with the value of byte 0.
  bool flip = false;
  int64_t shift = 0;
};

class Images final : public Dataset {
 public:
  // images: u8 [N, H, W]; labels: u8 [N]. Batches are [rows, 1, H, W].
  Images(Tensor images, Tensor labels, ImageOptions options = {});

  int64_t size() const override { return images_.size(0); }
  Shape sample_shape() const override { return {1, images_.size(1), images_.size(2)}; }
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

  int64_t classes() const { return classes_; }

 private:
  Tensor images_;
  Tensor labels_;
  ImageOptions options_;
  int64_t classes_ = 0;
};

// Reads `folder`/{train|t10k}-images-idx3-ubyte and …-labels-idx1-ubyte, plain or with .gz.
// Mean and stddev of the options are used as given.
Images read_mnist(const std::string& folder, bool train, ImageOptions options = {});

// Samples made from their index: for benchmarks and tests. Inputs are uniform in [0, 1), targets in
// [0, classes).
class Synthetic final : public Dataset {
 public:
  Synthetic(int64_t size, const Shape& sample_shape, int64_t classes, uint64_t seed = 0);

  int64_t size() const override { return size_; }
  Shape sample_shape() const override { return shape_; }
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

 private:
  int64_t size_;
  Shape shape_;
  int64_t classes_;
  uint64_t seed_;
};

}  // namespace weft::data
