#include "apps/resnet/options.h"

#include "apps/common/optimizers.h"
#include "nn/models/resnet.h"

#include <cmath>
#include <cstdlib>
#include <functional>

namespace weft::app {
namespace {

constexpr const char* kFashionMnist =
    "/usr/share/datasets/fashion-mnist";  // where Debian's package puts it

// A recipe. Rates grow with the batch (Goyal et al. 2017, §2.1): `lr` is that of `lr_batch` images.
struct Recipe {
  const char* arch = "resnet18";
  int64_t epochs = 90;
  int64_t batch = 256;
  const char* optimizer = "sgd";
  double lr = 0.1;
  int64_t lr_batch = 256;
  const char* schedule = "cosine";
  double warmup = 0;
  const char* milestones = "30,60,80";
  double weight_decay = 1e-4;
  bool vector_decay = true;
  double label_smoothing = 0;
  double ema = 0;
  bool zero_init = false;
  bool flip = true;
  int64_t shift = 0;
  double erase = 0;
};

Recipe recipe_of(const std::string& preset) {
  // He et al. 2016, §3.4, with the warm-up and the steps of Goyal et al. 2017.
  if (preset == "imagenet")
    return {.arch = "resnet50", .schedule = "step", .warmup = 5, .zero_init = true};
  // After He et al., "Bag of tricks", 2019, §§3.1 and 5, with half their weight decay.
  if (preset == "imagenet-cosine") {
    return {.arch = "resnet50",
            .warmup = 5,
            .weight_decay = 5e-5,
            .vector_decay = false,
            .label_smoothing = 0.1,
            .zero_init = true};
  }
  // Large batches: You et al. 2017, §5, a polynomial of power 2 after a warm-up.
  if (preset == "imagenet-lars") {
    return {.arch = "resnet50",
            .batch = 8192,
            .optimizer = "lars",
            .lr = 10,
            .lr_batch = 8192,
            .schedule = "polynomial",
            .warmup = 5,
            .vector_decay = false,
            .label_smoothing = 0.1,
            .zero_init = true};
  }
  // He et al. 2016, §4.2: 64,000 steps of 128, a tenth of the rate after 32,000 and 48,000.
  if (preset == "cifar") {
    return {.arch = "resnet20",
            .epochs = 164,
            .batch = 128,
            .lr_batch = 128,
            .schedule = "step",
            .milestones = "82,123",
            .shift = 4};
  }
  if (preset == "fashion") {
    return {.arch = "wide_resnet14_2",
            .epochs = 24,
            .batch = 128,
            .lr = 0.1,
            .lr_batch = 128,
            .schedule = "one_cycle",
            .weight_decay = 5e-4,
            .label_smoothing = 0.1,
            .ema = 0.998,
            .shift = 2};
  }
  return {.epochs = 10, .flip = false};
}

void apply_recipe(const CommandLine& line, ResNetAppOptions& options) {
  const Recipe recipe = recipe_of(options.preset);
  const auto unless_given = [&](const char* flag, auto& value, auto given) {
    if (!line.given(flag)) value = given;
  };
  CommonFlags& common = options.common;
  unless_given("--arch", options.arch, recipe.arch);
  unless_given("--epochs", common.epochs, recipe.epochs);
  unless_given("--global-batch", common.global_batch, recipe.batch);
  unless_given("--optimizer", common.optimizer, recipe.optimizer);
  unless_given(
      "--lr", common.lr,
      recipe.lr * static_cast<double>(common.global_batch) / static_cast<double>(recipe.lr_batch));
  unless_given("--schedule", options.schedule, recipe.schedule);
  unless_given("--warmup-epochs", options.warmup_epochs,
               options.schedule == "one_cycle" ? 0 : recipe.warmup);
  unless_given("--milestones", options.milestones, recipe.milestones);
  unless_given("--weight-decay", options.weight_decay, recipe.weight_decay);
  unless_given("--no-vector-decay", options.no_vector_decay, !recipe.vector_decay);
  unless_given("--label-smoothing", options.label_smoothing, recipe.label_smoothing);
  unless_given("--ema", options.ema, recipe.ema);
  unless_given("--zero-init", options.zero_init, recipe.zero_init);
  unless_given("--flip", options.flip, recipe.flip);
  unless_given("--shift", options.shift, recipe.shift);
  unless_given("--erase", options.erase, recipe.erase);
  // The default is another data set than these recipes are for.
  const bool own_data = options.preset == "none" || options.preset == "fashion";
  if (!own_data && !line.given("--data")) common.data.clear();
}

// "30,60,80", rising; nothing where it is not that.
std::optional<std::vector<double>> epochs_of(const std::string& text) {
  std::vector<double> epochs;
  const char* at = text.c_str();
  while (true) {
    char* end = nullptr;
    const double epoch = std::strtod(at, &end);
    if (end == at || !std::isfinite(epoch) || epoch <= (epochs.empty() ? 0 : epochs.back()))
      return std::nullopt;
    epochs.push_back(epoch);
    if (*end == '\0') return epochs;
    if (*end != ',') return std::nullopt;
    at = end + 1;
  }
}

std::optional<int> check(const CommandLine& line, ResNetAppOptions& options) {
  const auto epochs = epochs_of(options.milestones);
  if (!epochs)
    return line.reject("--milestones: expected rising epochs such as 30,60,80, got '" +
                       options.milestones + "'");
  options.milestone_epochs = *epochs;
  if (line.given("--milestones") && options.schedule != "step")
    return line.reject("--milestones: expected --schedule step, got " + options.schedule);
  if (options.warmup_epochs > 0 && options.schedule == "one_cycle")
    return line.reject(
        "--warmup-epochs: expected none with --schedule one_cycle, which has its own");
  for (const char* flag : {"--synthetic-samples", "--classes"}) {
    if (line.given(flag) && !options.synthetic)
      return line.reject(std::string(flag) + ": expected --synthetic beside it");
  }
  if (options.synthetic && line.given("--data"))
    return line.reject("--data: expected none with --synthetic");
  for (const char* flag : {"--flip", "--shift", "--erase"}) {
    if (options.synthetic && line.given(flag))
      return line.reject(std::string(flag) + ": expected none with --synthetic");
  }
  for (const char* flag : {"--bad-files", "--bad-limit"}) {
    if (options.synthetic && line.given(flag))
      return line.reject(std::string(flag) + ": expected none with --synthetic");
  }
  if (line.given("--bad-limit") && options.bad_files == "fail")
    return line.reject("--bad-limit: expected --bad-files skip or zero beside it, got fail");
  const std::string& optimizer = options.common.optimizer;
  if (line.given("--momentum") && !has_momentum(optimizer))
    return line.reject("--momentum: expected --optimizer sgd or lars, got " + optimizer);
  const std::string recipes = recipe_of(options.preset).optimizer;
  if (optimizer != recipes && !line.given("--lr"))
    return line.reject("--lr: expected one with --optimizer " + optimizer +
                       ", as the preset's is for " + recipes);
  if (!options.synthetic && options.common.data.empty())
    return line.reject("--data: expected a folder of images, or --synthetic");
  return std::nullopt;
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, ResNetAppOptions& options) {
  options.common.data = kFashionMnist;
  options.common.run_dir = "runs/resnet";
  CommandLine line(
      "resnet",
      "Trains residual networks on images or on synthetic ones. --data is a folder with "
      "IDX files (by default Fashion-MNIST), CIFAR's binary files, train.pack and "
      "val.pack (weft data pack), or the folders train and val with a folder for each "
      "class. Values that are not given are those of the preset; its learning rate is "
      "scaled by --global-batch.");
  line.add_choice("--preset", options.preset,
                  {"none", "imagenet", "imagenet-cosine", "imagenet-lars", "cifar", "fashion"},
                  "recipe");
  line.add_choice("--arch", options.arch, nn::models::resnet_names(), "network");
  line.add("--image-size", options.image_size,
           "side of the images, 0 for that of the data; of photographs and synthetic ones for what "
           "the network is meant for",
           0, 1 << 14);
  line.add_switch("--synthetic", options.synthetic, "train on numbers instead of images");
  line.add("--synthetic-samples", options.synthetic_samples, "how many such samples there are", 1);
  line.add("--classes", options.synthetic_classes, "classes of synthetic samples", 2, 1 << 20);
  line.add_choice("--schedule", options.schedule,
                  {"constant", "step", "cosine", "one_cycle", "polynomial"},
                  "learning-rate schedule after the warm-up");
  line.add("--warmup-epochs", options.warmup_epochs, "epochs in which the learning rate rises", 0.0,
           1e6);
  line.add("--milestones", options.milestones,
           "epochs after each of which the rate falls to a tenth, of --schedule step");
  line.add("--momentum", options.momentum, "momentum of sgd and lars", 0.0, 1.0);
  line.add("--weight-decay", options.weight_decay, "weight decay", 0.0, 1e3);
  line.add_switch("--no-vector-decay", options.no_vector_decay,
                  "no weight decay of biases and of BatchNorm");
  line.add("--label-smoothing", options.label_smoothing, "label smoothing", 0.0, 1.0);
  line.add("--ema", options.ema,
           "decay of a moving average of the weights, which is then what is tested and exported; 0 "
           "for none",
           0.0, 1.0);
  line.add("--clip", options.clip, "largest norm of the gradient, 0 for any", 0.0, 1e6);
  line.add_switch("--zero-init", options.zero_init,
                  "start each block's last BatchNorm from a gain of 0");
  line.add_switch("--flip", options.flip, "mirror training images at random");
  line.add("--shift", options.shift,
           "move training images by up to so many pixels: a random crop of the padded image", 0,
           1 << 14);
  line.add("--erase", options.erase, "probability of random erasing", 0.0, 1.0);
  line.add("--mixup", options.mixup, "blend training images: mixup's alpha, 0 for none", 0.0,
           100.0);
  line.add("--cutmix", options.cutmix, "paste parts of others: cutmix's alpha, 0 for none", 0.0,
           100.0);
  line.add_choice("--bad-files", options.bad_files, {"fail", "skip", "zero"},
                  "image files of a folder that cannot be read: stop, have no target (the rows of "
                  "their batch stay, and BatchNorm sees them), or are black");
  line.add("--bad-limit", options.bad_limit,
           "how many of them a rank puts up with, of --bad-files skip and zero", 0);
  line.add("--data-threads", options.data_threads, "threads of a rank that prepare batches", 1,
           4096);
  line.add_choice(
      "--tail", options.tail, {"drop", "mask"},
      "an epoch's last samples when they do not fill a batch: left out, or a batch with "
      "empty rows, which BatchNorm sees");
  add_common_flags(line, options.common);
  if (const auto code = line.parse(argc, argv)) return code;
  apply_recipe(line, options);
  if (const auto code = check(line, options)) return code;
  return apply_common_flags(line, options.common);
}

}  // namespace weft::app
