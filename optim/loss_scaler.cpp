#include "optim/loss_scaler.h"

#include "autograd/grad_mode.h"
#include "core/ledger.h"
#include "optim/blocks.h"

#include <algorithm>
#include <atomic>

namespace weft::optim {
namespace {

// Multiplies in place; whether all products are finite.
template <class T>
bool scale_values(T* values, int64_t count, T by) {
  int wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    values[i] *= by;
    wrong |= static_cast<int>(!(values[i] - values[i] == 0));  // NaN, too, is not
  }
  return wrong == 0;
}

template <class T>
Tensor number(T value) {
  return from_values(std::span<const T>(&value, 1), {});
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  WEFT_CHECK(
      options.smallest > 0 && options.smallest <= options.scale && options.scale <= options.largest,
      "loss_scaler", "expected a scale within [", options.smallest, ", ", options.largest,
      "], got ", options.scale);
  WEFT_CHECK(
      options.growth >= 1 && options.backoff > 0 && options.backoff < 1 && options.interval >= 1,
      "loss_scaler",
      "expected a growth of 1 or more, a backoff below 1 and an interval of steps, got ",
      options.growth, ", ", options.backoff, " and ", options.interval);
  const CategoryScope scope(Category::optimizer);
  scale_ = number(options.scale);
  good_steps_ = number(int64_t{0});
  skipped_ = number(int64_t{0});
}

double LossScaler::scale() const {
  return *scale_.data<double>();
}

int64_t LossScaler::skipped() const {
  return *skipped_.data<int64_t>();
}

bool LossScaler::unscale(const Parameters& parameters) {
  const NoGrad no_grad;
  Sharding* const sharding = parameters.sharding() ? &*parameters.sharding() : nullptr;
  if (sharding) sharding->finish_gradients();
  Blocks blocks;
  std::vector<Tensor> gradients;
  std::vector<size_t> of;  // which parameter of all
  const auto& list = parameters.list();
  for (size_t i = 0; i < list.size(); ++i) {
    const Tensor gradient = list[i].tensor.grad();
    if (!gradient.defined()) continue;
    WEFT_CHECK((gradient.dtype() == f32 || gradient.dtype() == f64) && gradient.is_dense(),
               "loss_scaler", "expected f32 or f64 gradients without gaps in memory, got ",
               gradient.dtype(), " for parameter ", list[i].name,
               ": a model of 16 bits needs the masters of dist::Parallel");
    blocks.add(gradient.numel());
    gradients.push_back(gradient);
    of.push_back(sharding ? sharding->place(list[i].tensor).parameter : i);
  }

  const double inverse = 1 / scale();
  std::vector<std::atomic<bool>> overflowed(gradients.size());
  blocks.parallel([&](size_t run, int64_t begin, int64_t end) {
    const Tensor& gradient = gradients[run];
    const bool finite = gradient.dtype() == f64
                            ? scale_values(gradient.data<double>() + begin, end - begin, inverse)
                            : scale_values(gradient.data<float>() + begin, end - begin,
                                           static_cast<float>(inverse));
    if (!finite) overflowed[run] = true;
  });
  std::vector<double> wrong(sharding ? sharding->all().size() : list.size());
  for (size_t run = 0; run < gradients.size(); ++run) {
    gradients[run].bump_version();
    if (overflowed[run]) wrong[of[run]] = 1;
  }
  if (sharding) sharding->max(wrong);

  double& scale = *scale_.data<double>();
  int64_t& good_steps = *good_steps_.data<int64_t>();
  const auto first = std::find(wrong.begin(), wrong.end(), 1.0);
  if (first == wrong.end()) {
    if (++good_steps >= options_.interval) {
      scale = std::min(scale * options_.growth, options_.largest);
      good_steps = 0;
    }
    return true;
  }
  const auto index = static_cast<size_t>(first - wrong.begin());
  WEFT_CHECK(scale > options_.smallest, "loss_scaler",
             "expected finite gradients with the loss scaled by ", scale,
             ", got others for parameter ",
             sharding ? sharding->all()[index].name : list[index].name);
  scale = std::max(scale * options_.backoff, options_.smallest);
  good_steps = 0;
  ++*skipped_.data<int64_t>();
  return false;
}

std::vector<NamedTensor> LossScaler::state_dict() const {
  return {{"loss_scaler.scale", scale_},
          {"loss_scaler.good_steps", good_steps_},
          {"loss_scaler.skipped", skipped_}};
}

}  // namespace weft::optim
