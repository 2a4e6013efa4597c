#include "optim/clip.h"

#include "autograd/grad_mode.h"
#include "ops/copy.h"
#include "optim/blocks.h"
#include "optim/norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace weft::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Gradient {
  const std::string* name;
  Tensor tensor;  // without gaps; undefined where there is none
};

std::vector<Gradient> gradients_of(const Parameters& parameters) {
  const NoGrad no_grad;
  if (parameters.sharding()) parameters.sharding()->finish_gradients();
  std::vector<Gradient> result;
  for (const auto& [name, parameter] : parameters.list()) {
    Tensor grad = parameter.grad();
    if (grad.defined() && !grad.is_dense()) {
      const CategoryScope scope(Category::gradients);
      grad = contiguous(grad);
      parameter.set_grad(grad);
    }
    result.push_back({&name, std::move(grad)});
  }
  return result;
}

Blocks blocks_of(const std::vector<Gradient>& gradients) {
  Blocks blocks;
  for (const Gradient& gradient : gradients)
    blocks.add(gradient.tensor.defined() ? gradient.tensor.numel() : 0);
  return blocks;
}

template <class F>
void dispatch_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Float16>();
    default:
      return f.template operator()<float>();
  }
}

// NaN gives NaN.
template <class T>
double max_magnitude(const T* values, int64_t count) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = std::fabs(static_cast<double>(static_cast<Wide>(values[i])));
    if (value != value) return value;
    largest = std::max(largest, value);
  }
  return largest;
}

// Changes every element: f is a function of float, or of double for f64.
template <class F>
void change(const std::vector<Gradient>& gradients, const F& f) {
  blocks_of(gradients).parallel([&](size_t run, int64_t begin, int64_t end) {
    const Tensor& tensor = gradients[run].tensor;
    dispatch_floating(tensor.dtype(), [&]<class T>() {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      T* values = tensor.data<T>();
      for (int64_t i = begin; i < end; ++i)
        values[i] = T(f(static_cast<Wide>(values[i])));
    });
  });
  for (const Gradient& gradient : gradients) {
    if (gradient.tensor.defined()) gradient.tensor.bump_version();
  }
}

// The largest magnitude of every parameter's gradient, over all ranks that hold parts of it.
std::vector<double> magnitudes(const Parameters& parameters,
                               const std::vector<Gradient>& gradients) {
  const auto& sharding = parameters.sharding();
  std::vector<double> result(sharding ? sharding->all().size() : gradients.size());
  const Blocks blocks = blocks_of(gradients);
  std::vector<double> of_block(static_cast<size_t>(blocks.total()));
  blocks.parallel([&](size_t run, int64_t begin, int64_t end) {
    const Tensor& tensor = gradients[run].tensor;
    dispatch_floating(tensor.dtype(), [&]<class T>() {
      for (int64_t at = begin; at < end; at += Blocks::kSize) {
        const auto block = static_cast<size_t>(blocks.first(run) + at / Blocks::kSize);
        of_block[block] = max_magnitude(tensor.data<T>() + at, std::min(Blocks::kSize, end - at));
      }
    });
  });
  for (size_t run = 0; run < gradients.size(); ++run) {
    const int64_t last = run + 1 < gradients.size() ? blocks.first(run + 1) : blocks.total();
    const size_t at = sharding ? sharding->place(parameters.list()[run].tensor).parameter : run;
    result[at] = max_magnitude(of_block.data() + blocks.first(run), last - blocks.first(run));
  }
  if (sharding) sharding->max(result);
  return result;
}

// The norm of each parameter's gradient: squared for norm 2.
std::vector<double> norms_of(const Parameters& parameters, const std::vector<Gradient>& gradients,
                             double norm) {
  WEFT_CHECK(norm == 2 || norm == kInfinity, "grad_norm", "expected the norm 2 or infinity, got ",
             norm);
  if (norm != 2) return magnitudes(parameters, gradients);
  return square_sums(parameters, [&](size_t i) { return gradients[i].tensor; });
}

double combine(const std::vector<double>& norms, double norm) {
  const auto count = static_cast<int64_t>(norms.size());
  return norm == 2 ? std::sqrt(tree_sum(norms.data(), count)) : max_magnitude(norms.data(), count);
}

}  // namespace

double tree_sum(const double* values, int64_t count) {
  if (count <= 1) return count == 1 ? values[0] : 0;
  const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  return tree_sum(values, half) + tree_sum(values + half, count - half);
}

double grad_norm(const Parameters& parameters, double norm) {
  return combine(norms_of(parameters, gradients_of(parameters), norm), norm);
}

double clip_grad_norm(const Parameters& parameters, double max_norm, ClipOptions options) {
  WEFT_CHECK(max_norm >= 0, "clip_grad_norm", "expected a max_norm of 0 or more, got ", max_norm);
  const std::vector<Gradient> gradients = gradients_of(parameters);
  const std::vector<double> norms = norms_of(parameters, gradients, options.norm);
  const double total = combine(norms, options.norm);
  if (!std::isfinite(total)) {
    if (!options.error_if_nonfinite) return total;
    for (size_t i = 0; i < norms.size(); ++i) {
      WEFT_CHECK(std::isfinite(norms[i]), "clip_grad_norm", "expected finite gradients, got ",
                 norms[i], " in the norm of parameter ",
                 parameters.sharding() ? parameters.sharding()->all()[i].name : *gradients[i].name);
    }
    throw_error("clip_grad_norm", {"expected a finite norm of all gradients, got ", total});
  }
  if (const double scale = max_norm / (total + 1e-6); scale < 1) {
    change(gradients, [scale](auto value) { return value * static_cast<decltype(value)>(scale); });
  }
  return total;
}

void clip_grad_value(const Parameters& parameters, double max) {
  WEFT_CHECK(max >= 0, "clip_grad_value", "expected a max of 0 or more, got ", max);
  change(gradients_of(parameters), [max](auto value) {
    const auto limit = static_cast<decltype(value)>(max);
    return value > limit ? limit : value < -limit ? -limit : value;
  });
}

}  // namespace weft::optim
