#include "apps/resnet/image_data.h"

#include "data/cifar.h"
#include "data/images.h"
#include "data/mixing.h"
#include "data/packed.h"
#include "nn/models/resnet.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace weft::app {
namespace {

// What pixels of a data set are on average, each in [0, 1].
struct Statistics {
  data::PerChannel mean;
  data::PerChannel stddev;
};
constexpr Statistics kFashion = {0.2860, 0.3530};
constexpr Statistics kCifar10 = {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
constexpr Statistics kCifar100 = {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}};
constexpr Statistics kImageNet = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

// Of the middle: 224 pixels of an image whose shorter side has become 256.
constexpr double kCentre = 0.875;

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

data::ImageOptions for_tests(const ResNetAppOptions& o, const Statistics& statistics) {
  return {.height = o.image_size,
          .width = o.image_size,
          .mean = statistics.mean,
          .stddev = statistics.stddev};
}

data::ImageOptions for_training(const ResNetAppOptions& o, const Statistics& statistics) {
  data::ImageOptions options = for_tests(o, statistics);
  options.flip = o.flip;
  options.shift = o.shift;
  options.erase = o.erase;
  return options;
}

std::unique_ptr<data::Images> owned(data::Images images) {
  return std::make_unique<data::Images>(std::move(images));
}

ImageData synthetic_data(const ResNetAppOptions& o) {
  const int64_t side = o.image_size > 0 ? o.image_size : nn::models::resnet_plan(o.arch).image_size;
  const auto make = [&](int64_t size, uint64_t seed) {
    return std::make_unique<data::Synthetic>(size, Shape{3, side, side}, o.synthetic_classes, seed);
  };
  return {.name = "synthetic images",
          .classes = o.synthetic_classes,
          .images = make(o.synthetic_samples, 0),
          .test = make(std::max<int64_t>(1, o.synthetic_samples / 10), 1)};
}

// Labelled bytes in memory; `read(train, options)` gives them.
template <class Read>
ImageData bytes_in_memory(const ResNetAppOptions& o, const char* name, const Statistics& statistics,
                          const Read& read) {
  auto training = owned(read(true, for_training(o, statistics)));
  auto test = owned(read(false, for_tests(o, statistics)));
  return {.name = name,
          .classes = std::max(training->classes(), test->classes()),
          .images = std::move(training),
          .test = std::move(test)};
}

// Large photographs: cut at random to train on, from the middle to test on.
struct Photographs {
  data::ImageOptions training;
  data::ImageOptions test;
};
Photographs photographs(const ResNetAppOptions& given) {
  ResNetAppOptions o = given;
  if (o.image_size == 0) o.image_size = nn::models::resnet_plan(o.arch).image_size;
  Photographs options{for_training(o, kImageNet), for_tests(o, kImageNet)};
  options.training.crop = data::Crop::random;
  options.test.crop = data::Crop::centre;
  options.test.crop_fraction = kCentre;
  return options;
}

ImageData packed_data(const ResNetAppOptions& o) {
  const data::PackedImages training(o.common.data + "/train.pack");
  const data::PackedImages test(o.common.data + "/val.pack");
  WEFT_CHECK(training.classes() == test.classes(), "resnet",
             "expected the same classes in train.pack and val.pack of ", o.common.data, ", got ",
             training.classes().size(), " and ", test.classes().size(),
             ", or others (weft data pack --classes)");
  const Photographs options = photographs(o);
  return {.name = o.common.data,
          .classes = static_cast<int64_t>(training.classes().size()),
          .class_names = training.classes(),
          .images = owned(training.images(options.training)),
          .test = owned(test.images(options.test))};
}

ImageData folder_data(const ResNetAppOptions& o) {
  const Photographs options = photographs(o);
  data::ImageFolderOptions folder{.bad_files = data::bad_file_from_name(o.bad_files),
                                  .bad_limit = o.bad_limit};
  auto training =
      std::make_unique<data::ImageFolder>(o.common.data + "/train", options.training, folder);
  folder.classes = training->classes();
  folder.empty_classes = data::EmptyClass::keep;  // a small test set may lack some
  auto test = std::make_unique<data::ImageFolder>(o.common.data + "/val", options.test, folder);
  ImageData data{.name = o.common.data,
                 .classes = static_cast<int64_t>(training->classes().size()),
                 .class_names = training->classes(),
                 .folders = {&*training, &*test}};
  data.images = std::move(training);
  data.test = std::move(test);
  return data;
}

ImageData found_data(const ResNetAppOptions& o) {
  const std::string& folder = o.common.data;
  const auto has = [&](const char* name) { return exists(folder + "/" + name); };
  const auto cifar = [&](data::Cifar kind) {
    return [&folder, kind](bool train, const data::ImageOptions& options) {
      return data::read_cifar(folder, kind, train, options);
    };
  };
  if (has("train-images-idx3-ubyte") || has("train-images-idx3-ubyte.gz")) {
    return bytes_in_memory(o, folder.c_str(), kFashion,
                           [&](bool train, const data::ImageOptions& options) {
                             return data::read_mnist(folder, train, options);
                           });
  }
  if (has("data_batch_1.bin") || has("cifar-10-batches-bin"))
    return bytes_in_memory(o, "CIFAR-10", kCifar10, cifar(data::Cifar::ten));
  if (has("train.bin") || has("cifar-100-binary"))
    return bytes_in_memory(o, "CIFAR-100", kCifar100, cifar(data::Cifar::hundred));
  if (has("train.pack")) return packed_data(o);
  if (has("train")) return folder_data(o);
  throw_error("resnet", {"expected images in ", folder,
                         ": IDX files, CIFAR's binary files, train.pack and val.pack, or the "
                         "folders train and val, got none of them"});
}

}  // namespace

ImageData read_image_data(const ResNetAppOptions& options) {
  ImageData data = options.synthetic ? synthetic_data(options) : found_data(options);
  WEFT_CHECK(options.bad_files == "fail" || !data.folders.empty(), "resnet",
             "expected the folders train and val for --bad-files ", options.bad_files,
             ", which is about files of images, got ", data.name);
  const Shape shape = data.images->sample_shape();
  WEFT_CHECK(data.images->size() > 0 && data.test->size() > 0 && shape == data.test->sample_shape(),
             "resnet", "expected training and test images of one size, got ", data.images->size(),
             " of ", shape, " and ", data.test->size(), " of ", data.test->sample_shape());
  if (options.mixup > 0 || options.cutmix > 0) {
    data.mixed = std::make_unique<data::Mixing>(
        *data.images, data::MixingOptions{.classes = data.classes,
                                          .mixup = options.mixup,
                                          .cutmix = options.cutmix,
                                          .label_smoothing = options.label_smoothing});
  }
  return data;
}

}  // namespace weft::app
