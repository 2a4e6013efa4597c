#include "apps/mnist/train.h"

#include "apps/common/optimizers.h"
#include "apps/common/training.h"
#include "data/images.h"
#include "weft.h"

#include <algorithm>
#include <memory>

namespace weft::app {
namespace {

// Mean and standard deviation of Fashion-MNIST's training pixels, of which each is in [0, 1].
constexpr double kMean = 0.2860;
constexpr double kStddev = 0.3530;

// Without memory for its parameters: they get it where they are to rest.
Ref<nn::Module> make_model(const std::string& name) {
  const nn::Deferred deferred;
  return nn::models::make_mnist_model(name);
}

class MnistTask final : public Task {
 public:
  explicit MnistTask(const MnistOptions& options)
      : options_(options),
        common_(options.common),
        train_(data::read_mnist(
            common_.data, true,
            {.mean = kMean, .stddev = kStddev, .flip = options.flip, .shift = options.shift})),
        test_(data::read_mnist(common_.data, false, {.mean = kMean, .stddev = kStddev})),
        model_(make_model(options.model)) {
    WEFT_CHECK(train_.sample_shape() == test_.sample_shape() &&
                   train_.sample_shape() == Shape({1, 28, 28}) && train_.classes() <= 10 &&
                   test_.classes() <= 10 && train_.size() > 0 && test_.size() > 0,
               "mnist", "expected 28×28 images of ten classes in ", common_.data, ", got ",
               train_.size(), " and ", test_.size(), " of ", train_.sample_shape(), " and ",
               test_.sample_shape(), " with labels up to ",
               std::max(train_.classes(), test_.classes()) - 1);
  }

  nn::Module& model() override { return *model_; }
  const data::Dataset& training() const override { return train_; }
  const data::Dataset& test() const override { return test_; }
  std::string headline() const override { return options_.model; }
  double clip_norm() const override { return options_.clip; }

  // The mlp takes [rows, 784], the others [rows, 1, 28, 28].
  Tensor logits(const Tensor& images) override {
    const Tensor shaped = options_.model == "mlp" ? flatten(images, 1) : images;
    return (*model_)(to(shaped, dtype_from_name(common_.dtype)));
  }

  Tensor loss(const Tensor& logits, const Tensor& targets) override {
    const double smoothing = model_->training() ? options_.label_smoothing : 0;
    return cross_entropy(logits, targets,
                         {.label_smoothing = smoothing, .reduction = Reduction::sum});
  }

  std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters) override {
    return app::make_optimizer(parameters, {.name = common_.optimizer,
                                            .lr = common_.lr,
                                            .momentum = options_.momentum,
                                            .weight_decay = options_.weight_decay});
  }

  optim::Schedule make_schedule(int64_t steps) const override {
    if (options_.schedule == "one_cycle") return optim::one_cycle(common_.lr, steps);
    if (options_.schedule == "cosine") return optim::cosine(common_.lr, steps);
    return optim::constant(common_.lr);
  }

 private:
  const MnistOptions& options_;
  const CommonFlags& common_;
  data::Images train_;
  data::Images test_;
  Ref<nn::Module> model_;
};

}  // namespace

void train_mnist(const MnistOptions& options, dist::Session& session) {
  MnistTask task(options);
  run_training(task, options.common, session, {.app = "mnist"});
}

}  // namespace weft::app
