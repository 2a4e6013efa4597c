// Which images the resnet app trains on: the one place that knows.
#pragma once

#include "apps/resnet/options.h"
#include "data/dataset.h"

#include <memory>

namespace weft::app {

struct ImageData {
  std::unique_ptr<data::Dataset> training;
  std::unique_ptr<data::Dataset> test;
  int64_t classes = 0;
  std::string name;  // for the headline
};

// Synthetic images, or those of the folder --data. Throws Error where they are not what the options
// say.
ImageData read_image_data(const ResNetAppOptions& options);

}  // namespace weft::app
