#include "apps/mnist/options.h"

#include "apps/common/optimizers.h"

namespace weft::app {
namespace {

constexpr const char* kFashionMnist =
    "/usr/share/datasets/fashion-mnist";  // where Debian's package puts it

void apply_preset(const CommandLine& line, MnistOptions& options) {
  if (options.preset != "accurate") return;
  const auto unless_given = [&](const char* flag, auto& value, auto preset) {
    if (!line.given(flag)) value = preset;
  };
  unless_given("--model", options.model, "cnn");
  unless_given("--epochs", options.common.epochs, 10);
  unless_given("--optimizer", options.common.optimizer, "adamw");
  unless_given("--schedule", options.schedule, "one_cycle");
  unless_given("--lr", options.common.lr, 0.003);
  unless_given("--weight-decay", options.weight_decay, 0.05);
  unless_given("--label-smoothing", options.label_smoothing, 0.1);
  unless_given("--flip", options.flip, true);
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, MnistOptions& options) {
  options.common.data = kFashionMnist;
  options.common.run_dir = "runs/mnist";
  options.common.lr = 0.05;
  CommandLine line(
      "mnist",
      "Trains a small network on MNIST-like images (IDX files; by default Fashion-MNIST).");
  line.add_choice("--model", options.model, {"mlp", "cnn", "norm_cnn"},
                  "network; norm_cnn has BatchNorm behind its convolutions");
  line.add_choice("--preset", options.preset, {"none", "accurate"},
                  "a set of values: accurate takes longer and gets further");
  line.add_choice("--schedule", options.schedule, {"constant", "cosine", "one_cycle"},
                  "learning-rate schedule");
  line.add("--momentum", options.momentum, "momentum of sgd and lars", 0.0, 1.0);
  line.add("--weight-decay", options.weight_decay, "weight decay", 0.0, 1e3);
  line.add("--clip", options.clip, "largest norm of the gradient, 0 for any", 0.0, 1e6);
  line.add("--label-smoothing", options.label_smoothing, "label smoothing", 0.0, 1.0);
  line.add_switch("--flip", options.flip, "mirror training images at random");
  line.add("--shift", options.shift, "move training images by up to so many pixels", 0, 28);
  add_common_flags(line, options.common);
  if (const auto code = line.parse(argc, argv)) return code;
  apply_preset(line, options);
  if (line.given("--momentum") && !has_momentum(options.common.optimizer))
    return line.reject("--momentum: expected --optimizer sgd or lars, got " +
                       options.common.optimizer);
  return apply_common_flags(line, options.common);
}

}  // namespace weft::app
