// Trains residual networks on images: `resnet --help` lists what it takes.
#include "apps/common/command_line.h"
#include "apps/common/training.h"
#include "apps/resnet/train.h"

namespace {

int run(int argc, char** argv) {
  weft::app::ResNetAppOptions o;
  if (const auto code = weft::app::parse_options(argc, argv, o)) return *code;
  return weft::app::run_trainer(
      o.common, "resnet",
      {.values = {{"arch", o.arch},
                  {"synthetic", o.synthetic ? o.synthetic_samples : 0},
                  {"image_size", o.image_size},
                  {"schedule", o.schedule},
                  {"warmup_epochs", o.warmup_epochs},
                  {"milestones", o.milestones},
                  {"momentum", o.momentum},
                  {"weight_decay", o.weight_decay},
                  {"vector_decay", int64_t{!o.no_vector_decay}},
                  {"label_smoothing", o.label_smoothing},
                  {"ema", o.ema},
                  {"zero_init", int64_t{o.zero_init}},
                  {"clip", o.clip},
                  {"flip", int64_t{o.flip}},
                  {"shift", o.shift},
                  {"erase", o.erase},
                  {"mixup", o.mixup},
                  {"cutmix", o.cutmix},
                  {"bad_files", o.bad_files},
                  {"bad_limit", o.bad_limit},
                  {"tail", o.tail}}},
      [&](weft::dist::Session& session) { weft::app::train_resnet(o, session); });
}

}  // namespace

int main(int argc, char** argv) {
  return weft::app::run_guarded("resnet", run, argc, argv);
}
