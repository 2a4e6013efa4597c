#include "apps/resnet/train.h"

#include "apps/common/optimizers.h"
#include "apps/common/training.h"
#include "apps/resnet/image_data.h"
#include "weft.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

namespace weft::app {
namespace {

// Without memory for its parameters: they get it where they are to rest.
Ref<nn::models::ResNet> make_model(const ResNetAppOptions& options, const ImageData& data) {
  const nn::Deferred deferred;
  return nn::models::make_resnet(options.arch, {.channels = data.test->sample_shape()[0],
                                                .classes = data.classes,
                                                .zero_init_residual = options.zero_init});
}

class ResNetTask final : public Task {
 public:
  explicit ResNetTask(const ResNetAppOptions& options)
      : options_(options),
        common_(options.common),
        data_(read_image_data(options)),
        model_(make_model(options, data_)) {}

  nn::Module& model() override { return *model_; }
  const data::Dataset& training() const override { return data_.training(); }
  const data::Dataset& test() const override { return *data_.test; }
  std::string headline() const override {
    return concat({options_.arch, " on ", data_.name, " ", data_.test->sample_shape()});
  }
  double clip_norm() const override { return options_.clip; }
  double ema_decay() const override { return options_.ema; }
  bool top5() const override { return data_.classes > 5; }
  data::Tail tail() const override {
    return options_.tail == "drop" ? data::Tail::drop : data::Tail::mask;
  }
  int data_threads() const override { return static_cast<int>(options_.data_threads); }
  // Activations of large images are large.
  int64_t evaluation_batch() const override {
    return data_.test->sample_shape().numel() > 3 * 64 * 64 ? 50 : 500;
  }
  std::vector<std::string> unit_types() const override {
    return {nn::models::resnet_plan(options_.arch).bottleneck ? "Bottleneck" : "BasicBlock"};
  }
  std::vector<std::pair<std::string, std::string>> metadata() const override {
    return {{"arch", options_.arch}};
  }

  Tensor logits(const Tensor& images) override {
    return (*model_)(to(images, dtype_from_name(common_.dtype)));
  }

  Tensor loss(const Tensor& logits, const Tensor& targets) override {
    // Shares of classes, which mixed images have, are smooth already.
    const bool smooths = model_->training() && !data_.mixed;
    const double smoothing = smooths ? options_.label_smoothing : 0;
    return cross_entropy(logits, targets,
                         {.label_smoothing = smoothing, .reduction = Reduction::sum});
  }

  std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters) override {
    return app::make_optimizer(parameters, {.name = common_.optimizer,
                                            .lr = common_.lr,
                                            .momentum = options_.momentum,
                                            .weight_decay = options_.weight_decay,
                                            .decay_vectors = !options_.no_vector_decay});
  }

  optim::Schedule make_schedule(int64_t steps) const override {
    const double lr = common_.lr;
    if (options_.schedule == "one_cycle") return optim::one_cycle(lr, steps);
    const int64_t warmup = std::min(steps_of(options_.warmup_epochs), steps - 1);
    const optim::Schedule after = after_warmup(steps, warmup);
    if (warmup <= 0) return after;
    const optim::Schedule before = optim::linear_warmup(lr, warmup);
    return {[=](int64_t step) { return step < warmup ? before(step) : after(step); }};
  }

  // Which number is which class. A run that goes on goes on with the numbers it has.
  void save_classes(const dist::Session& session) const {
    if (session.rank() != 0 || data_.class_names.empty()) return;
    const std::string path = session.directory() + "/classes.txt";
    if (common_.resume != "none" && access(path.c_str(), F_OK) == 0) {
      const std::vector<std::string> before = data::load_classes(path);
      const auto [was, is] = std::ranges::mismatch(before, data_.class_names);
      WEFT_CHECK(was == before.end() && is == data_.class_names.end(), "resnet", path, " line ",
                 was - before.begin() + 1, ": expected the classes of the run to go on with, ",
                 was == before.end() ? "no more" : *was, "; got ",
                 is == data_.class_names.end() ? "no more" : *is);
    }
    data::save_classes(path, data_.class_names);
  }

  std::optional<int64_t> unreadable() const override {
    if (options_.bad_files == "fail") return std::nullopt;
    int64_t count = 0;
    for (const data::ImageFolder* folder : data_.folders)
      count += static_cast<int64_t>(folder->failures().size());
    return count;
  }
  void tell_failures(const dist::Session& session) const {
    for (const data::ImageFolder* folder : data_.folders) {
      const auto failures = folder->failures();
      if (failures.empty()) continue;
      std::fprintf(stderr, "resnet: rank %d could not read %zu images, first %s\n", session.rank(),
                   failures.size(), failures.front().reason.c_str());
    }
  }

 private:
  int64_t steps_of(double epochs) const {
    const double samples = static_cast<double>(data_.training().size());
    const double batches = samples / static_cast<double>(common_.global_batch);
    const double whole = options_.tail == "drop" ? std::floor(batches) : std::ceil(batches);
    return std::llround(epochs * whole);
  }

  // By steps from the very first one.
  optim::Schedule after_warmup(int64_t steps, int64_t warmup) const {
    const double lr = common_.lr;
    if (options_.schedule == "constant") return optim::constant(lr);
    if (options_.schedule == "step") {
      std::vector<int64_t> milestones;
      for (const double epoch : options_.milestone_epochs) {
        milestones.push_back(steps_of(epoch));
        WEFT_CHECK(milestones.size() == 1 || milestones.back() > milestones.end()[-2], "resnet",
                   "expected --milestones at different steps, got ", options_.milestones,
                   ", of which two are step ", milestones.back());
      }
      return optim::multi_step(lr, std::move(milestones));
    }
    const optim::Schedule rest = options_.schedule == "cosine"
                                     ? optim::cosine(lr, steps - warmup)
                                     : optim::polynomial(lr, steps - warmup, 2);
    return {[=](int64_t step) { return rest(step - warmup); }};
  }

  const ResNetAppOptions& options_;
  const CommonFlags& common_;
  const ImageData data_;
  Ref<nn::models::ResNet> model_;
};

}  // namespace

void train_resnet(const ResNetAppOptions& options, dist::Session& session) {
  ResNetTask task(options);
  task.save_classes(session);
  run_training(task, options.common, session, {.app = "resnet"});
  task.tell_failures(session);
}

}  // namespace weft::app
