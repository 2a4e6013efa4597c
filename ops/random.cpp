// The random operators of ops/creation.h.
#include "core/random.h"

#include "ops/creation.h"
#include "ops/detail/elementwise.h"
#include "ops/detail/overwrite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace weft {
namespace {

// Narrow types keep the top of the interval open: rounding 1 - 2^-24 to 8 bits would give 1.
double precision_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p8;
    case DType::f16:
      return 0x1p11;
    default:
      return 0;
  }
}

template <class T>
void draw_uniform(const Tensor& target, const RandomKey& key, double low, double high) {
  const T base = static_cast<T>(low);
  const T range = static_cast<T>(high - low);
  const T top = static_cast<T>(high);
  const T grid = static_cast<T>(precision_of(target.dtype()));
  detail::write_blocks<T>(target, [&](int64_t first, T* out, int64_t count) {
    fill_uniform(key, static_cast<uint64_t>(first), out, count);
    if (grid > 0) {
      for (int64_t i = 0; i < count; ++i)
        out[i] = std::floor(out[i] * grid) / grid;
    }
    if (low == 0 && high == 1) return;
    for (int64_t i = 0; i < count; ++i) {
      const T value = base + range * out[i];
      out[i] = value < top ? value : base;  // rounding may reach the open end
    }
  });
}

template <class T>
void draw_normal(const Tensor& target, const RandomKey& key, double mean,
                 double standard_deviation) {
  const T shift = static_cast<T>(mean);
  const T scale = static_cast<T>(standard_deviation);
  detail::write_blocks<T>(target, [&](int64_t first, T* out, int64_t count) {
    fill_normal(key, static_cast<uint64_t>(first), out, count);
    if (mean == 0 && standard_deviation == 1) return;
    for (int64_t i = 0; i < count; ++i)
      out[i] = shift + scale * out[i];
  });
}

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * std::numbers::sqrt2 / 2);
}

// Inverse of erf: Winitzki's elementary approximation (2008, "A handy approximation for the error
// function and its inverse", eq. 7), refined by two steps of Halley's method.
double inverse_erf(double y) {
  if (!(std::fabs(y) < 1)) return y * std::numeric_limits<double>::infinity();
  constexpr double a = 0.147;
  const double log_term = std::log1p(-y * y);
  const double half = 2 / (std::numbers::pi * a) + log_term / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - log_term / a) - half), y);
  for (int step = 0; step < 2; ++step) {
    const double error = (std::erf(x) - y) / (2 * std::numbers::inv_sqrtpi * std::exp(-x * x));
    x -= error / (1 + x * error);
  }
  return x;
}

void check_random(const char* op, DType dtype) {
  WEFT_CHECK(is_floating(dtype), op, "expected a floating dtype, got ", dtype);
}

void uniform_values(const Tensor& target, double low, double high) {
  const RandomKey key = random_state().take();
  if (target.dtype() == f64) return draw_uniform<double>(target, key, low, high);
  draw_uniform<float>(target, key, low, high);
}

void normal_values(const Tensor& target, double mean, double standard_deviation) {
  const RandomKey key = random_state().take();
  if (target.dtype() == f64) return draw_normal<double>(target, key, mean, standard_deviation);
  draw_normal<float>(target, key, mean, standard_deviation);
}

}  // namespace

Tensor rand(const Shape& shape, Options options) {
  check_random("rand", options.dtype);
  const Tensor out = empty(shape, options);
  uniform_values(out, 0, 1);
  return out;
}

Tensor randn(const Shape& shape, Options options) {
  check_random("randn", options.dtype);
  const Tensor out = empty(shape, options);
  normal_values(out, 0, 1);
  return out;
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, Options options) {
  WEFT_CHECK(low < high, "randint", "expected low < high, got ", low, " and ", high);
  const Tensor out = empty(shape, options);
  const RandomKey key = random_state().take();
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  detail::write_blocks<int64_t>(out, [&](int64_t first, int64_t* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t draw = random_below(key, static_cast<uint64_t>(first + i), range);
      values[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + draw);
    }
  });
  return out;
}

Tensor bernoulli(const Shape& shape, double p, Options options) {
  WEFT_CHECK(p >= 0 && p <= 1, "bernoulli", "expected a probability in [0, 1], got ", p);
  const Tensor out = empty(shape, options);
  const RandomKey key = random_state().take();
  const auto bound = static_cast<float>(p);
  detail::write_blocks<float>(out, [&](int64_t first, float* values, int64_t count) {
    fill_uniform(key, static_cast<uint64_t>(first), values, count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = values[i] < bound ? 1.0f : 0.0f;
  });
  return out;
}

Tensor bernoulli(const Tensor& probabilities) {
  detail::check_defined("bernoulli", probabilities);
  check_random("bernoulli", probabilities.dtype());
  const NoGrad no_grad;
  const Tensor p = contiguous(to(probabilities, f32));
  const auto* bound = p.data<float>();
  for (int64_t i = 0; i < p.numel(); ++i) {
    WEFT_CHECK(bound[i] >= 0 && bound[i] <= 1, "bernoulli",
               "expected probabilities in [0, 1], got ", static_cast<double>(bound[i]),
               " at element ", i);
  }
  const Tensor out = empty_like(probabilities);
  const RandomKey key = random_state().take();
  detail::write_blocks<float>(out, [&](int64_t first, float* values, int64_t count) {
    fill_uniform(key, static_cast<uint64_t>(first), values, count);
    for (int64_t i = 0; i < count; ++i)
      values[i] = values[i] < bound[first + i] ? 1.0f : 0.0f;
  });
  return out;
}

Tensor randperm(int64_t n) {
  const Tensor out = empty({n}, {.dtype = i64});
  const RandomKey key = random_state().take();
  auto* values = out.data<int64_t>();
  for (int64_t i = 0; i < n;
       ++i) {  // inside-out: element i joins at a random place among the first i + 1
    const auto at = static_cast<int64_t>(
        random_below(key, static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1));
    values[i] = values[at];
    values[at] = i;
  }
  return out;
}

Tensor uniform_(const Tensor& target, double low, double high) {
  const detail::Overwrite overwrite("uniform_", target);
  check_random("uniform_", target.dtype());
  WEFT_CHECK(low <= high && std::isfinite(high - low), "uniform_",
             "expected finite low <= high, got ", low, " and ", high);
  uniform_values(target, low, high);
  return overwrite.done();
}

Tensor normal_(const Tensor& target, double mean, double standard_deviation) {
  const detail::Overwrite overwrite("normal_", target);
  check_random("normal_", target.dtype());
  WEFT_CHECK(standard_deviation >= 0, "normal_", "expected a standard deviation of 0 or more, got ",
             standard_deviation);
  normal_values(target, mean, standard_deviation);
  return overwrite.done();
}

Tensor trunc_normal_(const Tensor& target, double mean, double standard_deviation, double low,
                     double high) {
  const detail::Overwrite overwrite("trunc_normal_", target);
  check_random("trunc_normal_", target.dtype());
  WEFT_CHECK(standard_deviation > 0 && low < high, "trunc_normal_",
             "expected a positive standard deviation and low < high, got ", standard_deviation,
             ", ", low, " and ", high);
  const double cdf_low = normal_cdf((low - mean) / standard_deviation);
  const double cdf_high = normal_cdf((high - mean) / standard_deviation);
  const RandomKey key = random_state().take();
  detail::write_blocks<double>(target, [&](int64_t first, double* out, int64_t count) {
    fill_uniform(key, static_cast<uint64_t>(first), out, count);
    for (int64_t i = 0; i < count; ++i) {
      const double z =
          std::numbers::sqrt2 * inverse_erf(2 * (cdf_low + (cdf_high - cdf_low) * out[i]) - 1);
      out[i] = std::clamp(mean + standard_deviation * z, low, high);
    }
  });
  return overwrite.done();
}

}  // namespace weft
