#include "optim/ema.h"

#include "autograd/grad_mode.h"
#include "core/ledger.h"
#include "ops/copy.h"
#include "ops/detail/convert.h"
#include "optim/blocks.h"

#include <algorithm>
#include <array>

namespace weft::optim {
namespace {

constexpr int64_t kWidened = 512;  // elements of 16 bits that are widened at a time

bool is_16_bit(const Tensor& tensor) {
  return tensor.dtype() == f16 || tensor.dtype() == bf16;
}

template <class T>
void average_run(T* average, const T* value, int64_t count, double share) {
  const T part = static_cast<T>(share);
  for (int64_t i = 0; i < count; ++i)
    average[i] += part * (value[i] - average[i]);
}

}  // namespace

Ema::Ema(const Parameters& parameters, const EmaOptions& options,
         const std::vector<NamedTensor>& buffers)
    : options_(options), sharding_(parameters.sharding()) {
  WEFT_CHECK(options.decay >= 0 && options.decay <= 1, "ema", "expected a decay in [0, 1], got ",
             options.decay);
  const NoGrad no_grad;
  const CategoryScope scope(Category::optimizer);
  for (const NamedTensor& named : parameters.list())
    add(named);
  parameters_ = items_.size();
  for (const NamedTensor& named : buffers) {
    if (is_floating(named.tensor.dtype())) add(named);
  }
  constexpr int64_t kNone = 0;
  updates_ = from_values(std::span<const int64_t>(&kNone, 1), {});
}

void Ema::add(const NamedTensor& named) {
  const Tensor value = named.tensor;
  WEFT_CHECK(value.defined() && value.is_dense() && is_floating(value.dtype()), "ema",
             "expected floating values without gaps in memory, got ", named.name, " of ",
             value.dtype(), value.shape(), " and strides ", value.strides());
  Tensor average = empty_like(value, compute_dtype(value.dtype()));
  copy_(average, value.detach());
  items_.push_back({named.name, value, average, {}});
}

// Calls f(item, first, last) over the elements of all items, on this thread's num_threads().
template <class F>
void Ema::each_run(const F& f) {
  Blocks blocks;
  for (const Item& item : items_) {
    WEFT_CHECK(item.value.numel() == item.average.numel() &&
                   compute_dtype(item.value.dtype()) == item.average.dtype() &&
                   (item.value.strides() == item.average.strides() ||
                    (item.value.is_contiguous() && item.average.is_contiguous())),
               "ema", "expected ", item.name, " as it was when its average began, ",
               item.average.dtype(), item.average.shape(), ", got ", item.value.dtype(),
               item.value.shape());
    blocks.add(item.value.numel());
  }
  blocks.parallel([&](size_t at, int64_t first, int64_t last) { f(items_[at], first, last); });
}

void Ema::update() {
  WEFT_CHECK(!swapped_, "ema", "expected swap() back before update(), got averages for weights");
  const NoGrad no_grad;
  int64_t& updates = *updates_.data<int64_t>();
  const auto n = static_cast<double>(updates);
  const double decay =
      options_.warm_up ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay;
  each_run([&](const Item& item, int64_t first, int64_t last) {
    if (item.average.dtype() == f64) {
      return average_run(item.average.data<double>() + first, item.value.data<double>() + first,
                         last - first, 1 - decay);
    }
    float* const average = item.average.data<float>();
    if (!is_16_bit(item.value)) {
      return average_run(average + first, item.value.data<float>() + first, last - first,
                         1 - decay);
    }
    std::array<float, kWidened> wide;
    for (int64_t at = first; at < last; at += kWidened) {
      const int64_t count = std::min(kWidened, last - at);
      weft::detail::load_run(wide.data(), item.value.raw() + at * 2, item.value.dtype(), 1, count);
      average_run(average + at, wide.data(), count, 1 - decay);
    }
  });
  for (const Item& item : items_)
    item.average.bump_version();
  ++updates;
}

int64_t Ema::updates() const {
  return *updates_.data<int64_t>();
}

void Ema::swap() {
  const NoGrad no_grad;
  for (Item& item : items_) {  // all memory first: it may run out
    if (is_16_bit(item.value) && !swapped_) {
      const CategoryScope scope(Category::optimizer);
      item.kept = clone(item.value.detach());
    }
  }
  each_run([&](const Item& item, int64_t first, int64_t last) {
    const int64_t width = size_of(item.value.dtype());
    std::byte* const value = item.value.raw();
    if (!is_16_bit(item.value)) {
      std::byte* const average = item.average.raw();
      std::swap_ranges(value + first * width, value + last * width, average + first * width);
    } else if (swapped_) {
      std::copy_n(item.kept.raw() + first * width, (last - first) * width, value + first * width);
    } else {
      weft::detail::store_run(value + first * width, item.value.dtype(), 1,
                              item.average.data<float>() + first, last - first);
    }
  });
  for (Item& item : items_) {
    item.value.bump_version();
    item.average.bump_version();
    if (swapped_) item.kept = {};
  }
  swapped_ = !swapped_;
  if (sharding_) sharding_->parameters_changed();
}

std::vector<NamedTensor> Ema::averages() const {
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < parameters_; ++i)
    result.push_back({items_[i].name, items_[i].average});
  return result;
}

std::vector<NamedTensor> Ema::replicated() const {
  std::vector<NamedTensor> result = {{"updates", updates_}};
  for (size_t i = parameters_; i < items_.size(); ++i)
    result.push_back({"buffer." + items_[i].name, items_[i].average});
  return result;
}

std::vector<NamedTensor> Ema::state_dict() const {
  std::vector<NamedTensor> result = replicated();
  for (const auto& [name, average] : averages())
    result.push_back({"average." + name, average});
  return result;
}

int64_t Ema::state_bytes() const {
  int64_t bytes = updates_.bytes();
  for (const Item& item : items_)
    bytes += item.average.bytes();
  return bytes;
}

}  // namespace weft::optim
