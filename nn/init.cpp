#include "nn/init.h"

#include "autograd/grad_mode.h"
#include "core/random.h"
#include "nn/deferred.h"
#include "nn/detail/recipe.h"
#include "ops/copy.h"
#include "ops/creation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::nn::init {
namespace {

// Draws take one key.
enum class Draws : uint8_t { no, yes };

// Calls fill(target), which does not see changes of the target's dtype after this, when there is
// memory.
template <class F>
const Tensor& now_or_later(const Tensor& target, Draws draws, const F& fill) {
  const NoGrad no_grad;
  if (!is_deferred(target)) {
    fill(target);
    return target;
  }
  const RandomState then = random_state();
  if (draws == Draws::yes) random_state().take();
  nn::detail::defer_values(target, [then, fill](const Tensor& values) {
    struct Restore {
      RandomState before = std::exchange(random_state(), RandomState{});
      ~Restore() { random_state() = before; }
    } restore;
    random_state() = then;
    fill(values);
  });
  return target;
}

double fan_of(const Tensor& target, Fan fan) {
  const Fans both = fans(target.shape());
  return static_cast<double>(fan == Fan::in ? both.in : both.out);
}

double xavier_deviation(const Tensor& target, double gain) {
  const Fans both = fans(target.shape());
  return both.in + both.out == 0 ? 0
                                 : gain * std::sqrt(2.0 / static_cast<double>(both.in + both.out));
}

double kaiming_deviation(const Tensor& target, double slope, Fan fan) {
  const double count = fan_of(target, fan);
  return count == 0 ? 0 : std::sqrt(2.0 / ((1 + slope * slope) * count));
}

// Uniform with this standard deviation.
Tensor uniform_of_deviation(const Tensor& target, double deviation) {
  const double bound = std::sqrt(3.0) * deviation;
  return init::uniform_(target, -bound, bound);
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += a[i] * b[i];
  return sum;
}

void orthogonal_values(const Tensor& target, double gain) {
  const int64_t rows = target.size(0);
  const int64_t columns = target.numel() / rows;
  const int64_t vectors = std::min(rows, columns);
  const int64_t length = std::max(rows, columns);
  const Tensor basis = weft::normal_(empty({vectors, length}, {.dtype = f64}));
  auto* at = basis.data<double>();
  // Gram-Schmidt, twice: the second pass removes what rounding left in the first.
  for (int64_t i = 0; i < vectors; ++i) {
    double* own = at + i * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const double* other = at + j * length;
        const double share = dot(own, other, length);
        for (int64_t k = 0; k < length; ++k)
          own[k] -= share * other[k];
      }
    }
    const double norm = std::sqrt(dot(own, own, length));
    for (int64_t k = 0; k < length; ++k)
      own[k] /= norm;
  }
  for (int64_t i = 0; i < basis.numel(); ++i)
    at[i] *= gain;
  // A view of the shape wanted: vectors are its rows, or its columns.
  Strides strides = contiguous_strides(target.shape());
  if (rows > columns) {
    strides[0] = 1;
    int64_t step = length;
    for (int dim = target.dims() - 1; dim > 0; --dim) {
      strides[dim] = step;
      step *= target.shape()[dim];
    }
  }
  copy_(target, alias(basis, target.shape(), strides));
}

}  // namespace

Fans fans(const Shape& weight) {
  WEFT_CHECK(weight.dims() >= 2, "fans", "expected a weight of at least 2 dims, got ", weight);
  int64_t kernel = 1;
  for (int dim = 2; dim < weight.dims(); ++dim)
    kernel *= weight[dim];
  return {weight[1] * kernel, weight[0] * kernel};
}

Tensor zeros_(const Tensor& target) {
  return constant_(target, 0);
}
Tensor ones_(const Tensor& target) {
  return constant_(target, 1);
}

Tensor constant_(const Tensor& target, double value) {
  return now_or_later(target, Draws::no, [=](const Tensor& to) { fill_(to, value); });
}

Tensor uniform_(const Tensor& target, double low, double high) {
  return now_or_later(target, Draws::yes, [=](const Tensor& to) { weft::uniform_(to, low, high); });
}

Tensor normal_(const Tensor& target, double mean, double standard_deviation) {
  return now_or_later(target, Draws::yes,
                      [=](const Tensor& to) { weft::normal_(to, mean, standard_deviation); });
}

Tensor trunc_normal_(const Tensor& target, double mean, double standard_deviation, double low,
                     double high) {
  return now_or_later(target, Draws::yes, [=](const Tensor& to) {
    weft::trunc_normal_(to, mean, standard_deviation, low, high);
  });
}

Tensor xavier_uniform_(const Tensor& target, double gain) {
  return uniform_of_deviation(target, xavier_deviation(target, gain));
}

Tensor xavier_normal_(const Tensor& target, double gain) {
  return init::normal_(target, 0, xavier_deviation(target, gain));
}

Tensor kaiming_uniform_(const Tensor& target, double slope, Fan fan) {
  return uniform_of_deviation(target, kaiming_deviation(target, slope, fan));
}

Tensor kaiming_normal_(const Tensor& target, double slope, Fan fan) {
  return init::normal_(target, 0, kaiming_deviation(target, slope, fan));
}

Tensor orthogonal_(const Tensor& target, double gain) {
  WEFT_CHECK(target.dims() >= 2, "orthogonal_", "expected at least 2 dims, got ", target.shape());
  if (target.numel() == 0) return target;
  return now_or_later(target, Draws::yes, [=](const Tensor& to) { orthogonal_values(to, gain); });
}

void default_weight_and_bias_(const Tensor& weight, const Tensor& bias) {
  const double count = fan_of(weight, Fan::in);
  const double bound = count > 0 ? 1 / std::sqrt(count) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

}  // namespace weft::nn::init
