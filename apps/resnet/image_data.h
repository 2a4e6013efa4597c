// Which images the resnet app trains on: the one place that knows.
#pragma once

#include "apps/resnet/options.h"
#include "data/image_folder.h"

#include <memory>
#include <string>
#include <vector>

namespace weft::app {

struct ImageData {
  std::string name;  // for the headline
  int64_t classes = 0;
  std::vector<std::string> class_names = {};   // where folders name them
  std::unique_ptr<data::Dataset> images = {};  // to train on
  std::unique_ptr<data::Dataset> mixed = {};   // the same with others mixed in, if asked for
  std::unique_ptr<data::Dataset> test = {};
  std::vector<const data::ImageFolder*> folders = {};  // of these, those that decode files

  const data::Dataset& training() const { return mixed ? *mixed : *images; }
};

// Synthetic images, or what is found in the folder --data:
//   train-images-idx3-ubyte and its like, plain or with .gz: MNIST and its relatives;
//   data_batch_1.bin … or train.bin, or the folder of the archive: CIFAR-10 or CIFAR-100;
//   train.pack and val.pack: files of `weft data pack`;
//   train/ and val/: folders with a folder for each class (data/image_folder.h).
// Images of packed files and folders are cut at random for training and from the middle for tests.
// Throws Error where they are not what the options say.
ImageData read_image_data(const ResNetAppOptions& options);

}  // namespace weft::app
