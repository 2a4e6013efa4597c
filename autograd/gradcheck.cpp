#include "autograd/gradcheck.h"

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "core/random.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

using CheckedFunction = Function<Tensor(const std::vector<Tensor>&)>;

// Puts the random state back, so that every call of f draws the same values.
class SameDraws {
 public:
  SameDraws() : before_(random_state()) {}
  ~SameDraws() { random_state() = before_; }
  SameDraws(const SameDraws&) = delete;
  SameDraws& operator=(const SameDraws&) = delete;

 private:
  RandomState before_;
};

Tensor call(const CheckedFunction& f, const std::vector<Tensor>& inputs) {
  const SameDraws same_draws;
  Tensor out = f(inputs);
  WEFT_CHECK(out.defined() && out.dtype() == f64, "gradcheck",
             "expected a function with an f64 result, got ",
             out.defined() ? to_string(out.dtype()) : "an undefined tensor");
  return out;
}

double weighted_sum(const std::vector<double>& weights, const Tensor& out) {
  const std::vector<double> values = out.to_vector<double>();
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += weights[i] * values[i];
  return sum;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

// Not written as a > so that a NaN on either side counts as a difference.
bool close(double a, double b, double tolerance) {
  return std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(b));
}

}  // namespace

std::string gradcheck(const CheckedFunction& f, const std::vector<Tensor>& inputs,
                      GradcheckOptions options) {
  std::vector<Tensor> given;   // the inputs as leaves of their own, in the caller's layout
  std::vector<Tensor> copies;  // the same values, row-major
  std::vector<Tensor> checked;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) {
      given.push_back(input);
      copies.push_back(input);
      continue;
    }
    WEFT_CHECK(input.dtype() == f64, "gradcheck", "expected inputs of f64, got ", input.dtype());
    given.push_back(input.detach().set_requires_grad());
    copies.push_back(from_values(input.to_vector<double>(), input.shape()));
    checked.push_back(given.back());
  }
  WEFT_CHECK(!checked.empty(), "gradcheck", "expected an input that requires a gradient, got none");

  const EnableGrad recording;
  const Tensor out = call(f, given);
  if (!out.requires_grad())
    return "the result does not depend on any input that requires a gradient";
  // In ±[0.5, 1.5): no element of the result goes unnoticed.
  std::vector<double> weights(static_cast<size_t>(out.numel()));
  fill_uniform({.seed = 0x77656674}, 0, weights.data(), out.numel());
  for (double& weight : weights)
    weight = weight < 0.5 ? weight - 1.5 : weight + 0.5;
  const std::vector<Tensor> found = gradients(out, checked, from_values(weights, out.shape()));

  const NoGrad no_grad;
  const std::vector<double> values = out.to_vector<double>();
  const std::vector<double> values_of_copies = call(f, copies).to_vector<double>();
  if (values.size() != values_of_copies.size())
    return "the size of the result depends on the layout of the inputs";
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same = values[i] == values_of_copies[i] ||
                      (std::isnan(values[i]) && std::isnan(values_of_copies[i]));
    if (!same && !close(values[i], values_of_copies[i], options.tolerance)) {
      return concat({"result element ", i, ": ", number(values[i]), " for the inputs as given, ",
                     number(values_of_copies[i]), " for row-major copies"});
    }
  }

  size_t at = 0;
  for (size_t input = 0; input < inputs.size(); ++input) {
    if (!inputs[input].defined() || !inputs[input].requires_grad()) continue;
    const Tensor& gradient = found[at++];
    const Tensor& x = copies[input];
    if (gradient.defined() && (gradient.shape() != x.shape() || gradient.dtype() != f64)) {
      return concat({"input ", input, ": expected a gradient of shape ", x.shape(),
                     " and dtype f64, got ", gradient.shape(), " and ", gradient.dtype()});
    }
    const std::vector<double> analytic = gradient.defined()
                                             ? gradient.to_vector<double>()
                                             : std::vector<double>(static_cast<size_t>(x.numel()));
    for (int64_t i = 0; i < x.numel(); ++i) {
      double& element = x.data<double>()[i];
      const double before = element;
      element = before + options.step;
      const double above = weighted_sum(weights, call(f, copies));
      element = before - options.step;
      const double below = weighted_sum(weights, call(f, copies));
      element = before;
      const double difference = (above - below) / (2 * options.step);
      const double value = analytic[static_cast<size_t>(i)];
      if (!close(value, difference, options.tolerance)) {
        return concat({"input ", input, " of shape ", x.shape(), ", element ", i,
                       ": backward gives ", number(value), ", central differences give ",
                       number(difference)});
      }
    }
  }
  return "";
}

}  // namespace weft
