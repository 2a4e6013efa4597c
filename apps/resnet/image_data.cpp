#include "apps/resnet/image_data.h"

#include "data/images.h"
#include "nn/models/resnet.h"

#include <algorithm>

namespace weft::app {
namespace {

// Mean and standard deviation of Fashion-MNIST's training pixels, of which each is in [0, 1].
constexpr double kMean = 0.2860;
constexpr double kStddev = 0.3530;

ImageData synthetic_data(const ResNetAppOptions& o) {
  const int64_t side =
      o.image_size > 0 ? o.image_size : nn::models::resnet_plan(o.arch).image_size;
  const auto make = [&](int64_t size, uint64_t seed) {
    return std::make_unique<data::Synthetic>(size, Shape{3, side, side}, o.synthetic_classes, seed);
  };
  const int64_t held_out = std::max<int64_t>(1, o.synthetic_samples / 10);
  return {make(o.synthetic_samples, 0), make(held_out, 1), o.synthetic_classes, "synthetic images"};
}

ImageData idx_data(const ResNetAppOptions& o) {
  const std::string& folder = o.common.data;
  auto training = std::make_unique<data::Images>(data::read_mnist(
      folder, true, {.mean = kMean, .stddev = kStddev, .flip = o.flip, .shift = o.shift}));
  auto test = std::make_unique<data::Images>(
      data::read_mnist(folder, false, {.mean = kMean, .stddev = kStddev}));
  const Shape shape = training->sample_shape();
  WEFT_CHECK(training->size() > 0 && test->size() > 0 && shape == test->sample_shape(), "resnet",
             "expected training and test images of one size in ", folder, ", got ",
             training->size(), " of ", shape, " and ", test->size(), " of ", test->sample_shape());
  WEFT_CHECK(o.image_size == 0 || (shape[1] == o.image_size && shape[2] == o.image_size), "resnet",
             "expected an --image-size of 0, or that of the images in ", folder, ", ", shape,
             ", got ", o.image_size);
  const int64_t classes = std::max(training->classes(), test->classes());
  return {std::move(training), std::move(test), classes, folder};
}

}  // namespace

ImageData read_image_data(const ResNetAppOptions& options) {
  return options.synthetic ? synthetic_data(options) : idx_data(options);
}

}  // namespace weft::app
