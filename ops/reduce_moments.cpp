// Reductions of centred or powered values: variance, norms, log-sum-exp.
#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/gradient.h"
#include "ops/detail/reducers.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

#include <algorithm>
#include <cmath>

namespace weft {

using namespace detail;

namespace {

struct VarianceGradient {
  double scale;  // 2 / (n - correction)
  template <class V>
  V operator()(V g, V x, V mean) const {
    return g * constant<V>(scale) * (x - mean);
  }
};

struct DeviationGradient {
  double scale;  // 1 / (n - correction)
  template <class V>
  V operator()(V g, V x, V mean, V deviation) const {
    const V d = g * constant<V>(scale) * (x - mean) / deviation;
    return where(deviation == constant<V>(0), constant<V>(0), d);
  }
};

struct SquareRoot {
  template <class V>
  V operator()(V x) const {
    return functors::sqrt(x);
  }
};
struct LogPlus {
  template <class V>
  V operator()(V total, V shift) const {
    return functors::log(total) + shift;
  }
};
struct Root {
  double exponent;
  template <class V>
  V operator()(V x) const {
    return functors::pow(x, constant<V>(exponent));
  }
};

template <class V>
V sign(V x) {
  return where(x > constant<V>(0), constant<V>(1), where(x < constant<V>(0), constant<V>(-1), x));
}

// g · sign(x) · (|x| / norm)^(p-1)
struct NormGradient {
  double p;
  template <class V>
  V operator()(V g, V x, V norm) const {
    const V ratio = functors::pow(functors::fabs(x) / norm, constant<V>(p - 1));
    return where((norm == constant<V>(0)) | (x == constant<V>(0)), constant<V>(0),
                 g * sign(x) * ratio);
  }
};
struct OneNormGradient {
  template <class V>
  V operator()(V g, V x) const {
    return g * sign(x);
  }
};
struct TwoNormGradient {
  template <class V>
  V operator()(V g, V x, V norm) const {
    return where(norm == constant<V>(0), constant<V>(0), g * (x / norm));
  }
};
struct ExtremeNormGradient {
  template <class V>
  V operator()(V g, V x, V norm, V ties) const {
    return where(functors::fabs(x) == norm, g * sign(x) / ties, constant<V>(0));
  }
};

struct LogSumExpGradient {
  template <class V>
  V operator()(V g, V x, V y) const {
    return where(y == constant<V>(-HUGE_VAL), constant<V>(0), g * functors::exp(x - y));
  }
};
// What to subtract before exp: the largest value, or 0 where that is infinite.
struct FiniteOrZero {
  template <class V>
  V operator()(V x) const {
    return where(functors::fabs(x) == constant<V>(HUGE_VAL), constant<V>(0), x);
  }
};

template <class F>
Tensor map(const Tensor& x, const F& f) {
  return gradient_like(x, f, x);
}

struct Moments {
  Tensor mean;  // of the compute type, reduced dims kept as 1
  Tensor variance;
  double count;  // n - correction, at least 0
};

Moments moments(const Tensor& x, DimSet set, int64_t correction) {
  const DType compute = compute_dtype(x.dtype());
  const int64_t n = reduced_count(x, set);
  Moments m;
  m.count = static_cast<double>(std::max<int64_t>(0, n - correction));
  m.mean = div(reduce<Numbers::real>(x, set, compute, Plain<Adding>{}), static_cast<double>(n));
  m.variance = div(reduce<Numbers::real>(x, set, compute, CentredSquares{}, m.mean), m.count);
  return m;
}

// The norm in the compute type, reduced dims kept.
Tensor wide_norm(const Tensor& x, DimSet set, double p) {
  const DType compute = compute_dtype(x.dtype());
  if (p == 0) return reduce<Numbers::real>(x, set, compute, CountNonzero{});
  if (p == 1) return reduce<Numbers::real>(x, set, compute, Magnitude<Adding>{});
  if (p == 2) return map(reduce<Numbers::real>(x, set, compute, SumOfSquares{}), SquareRoot{});
  if (p == HUGE_VAL) {  // of nothing: 0, as for any other p > 0
    return reduced_count(x, set) > 0 ? reduce<Numbers::real>(x, set, compute, Magnitude<Maximal>{})
                                     : reduce<Numbers::real>(x, set, compute, Plain<Adding>{});
  }
  if (p == -HUGE_VAL) return reduce<Numbers::real>(x, set, compute, Magnitude<Minimal>{});
  return map(reduce<Numbers::real>(x, set, compute, SumOfPowers{{}, p}), Root{1 / p});
}

}  // namespace

Tensor var(const Tensor& x, const Shape& dims, int64_t correction, bool keepdim) {
  const ProfileOp profile("var");
  check_floating("var", x);
  const DimSet set = dim_set("var", x, dims);
  const Moments m = moments(x, set, correction);
  Tensor out = drop_dims(to(m.variance, x.dtype()), set, keepdim);
  if (recording(x)) {
    record("var", out, inputs(x),
           [x = Saved(x), mean = m.mean, scale = 2 / m.count, set](const Tensor& g, Gradients& to) {
             const Tensor& value = x.get("var");
             to.set(0, gradient_like(value, VarianceGradient{scale},
                                     restore_dims(g, value.shape(), set), value, mean));
           });
  }
  return out;
}

Tensor stddev(const Tensor& x, const Shape& dims, int64_t correction, bool keepdim) {
  const ProfileOp profile("stddev");
  check_floating("stddev", x);
  const DimSet set = dim_set("stddev", x, dims);
  const Moments m = moments(x, set, correction);
  const Tensor deviation = map(m.variance, SquareRoot{});
  Tensor out = drop_dims(to(deviation, x.dtype()), set, keepdim);
  if (recording(x)) {
    record("stddev", out, inputs(x),
           [x = Saved(x), mean = m.mean, deviation = Saved::output(deviation), scale = 1 / m.count,
            set](const Tensor& g, Gradients& to) {
             const Tensor& value = x.get("stddev");
             to.set(0, gradient_like(value, DeviationGradient{scale},
                                     restore_dims(g, value.shape(), set), value, mean,
                                     deviation.get("stddev")));
           });
  }
  return out;
}

Tensor norm(const Tensor& x, double p, const Shape& dims, bool keepdim) {
  const ProfileOp profile("norm");
  check_floating("norm", x);
  WEFT_CHECK(!std::isnan(p), "norm", "expected a number p, got ", p);
  const DimSet set = dim_set("norm", x, dims);
  WEFT_CHECK(p >= 0 || reduced_count(x, set) > 0, "norm", "expected at least one value for p = ", p,
             ", got shape ", x.shape());
  const Tensor wide = wide_norm(x, set, p);
  Tensor out = drop_dims(to(wide, x.dtype()), set, keepdim);
  if (recording(x)) {
    record("norm", out, inputs(x),
           [x = Saved(x), wide = Saved::output(wide), p, set](const Tensor& g, Gradients& to) {
             const Tensor& value = x.get("norm");
             const Tensor& length = wide.get("norm");
             const Tensor thin = restore_dims(g, value.shape(), set);
             if (p == 0) return to.set(0, zeros_like(value));
             if (p == 1) return to.set(0, gradient_like(value, OneNormGradient{}, thin, value));
             if (p == 2)
               return to.set(0, gradient_like(value, TwoNormGradient{}, thin, value, length));
             if (!std::isinf(p))
               return to.set(0, gradient_like(value, NormGradient{p}, thin, value, length));
             const Tensor ties =
                 reduce<Numbers::real>(value, set, length.dtype(), CountEqualMagnitude{}, length);
             to.set(0, gradient_like(value, ExtremeNormGradient{}, thin, value, length, ties));
           });
  }
  return out;
}

Tensor norm(const Tensor& x, double p) {
  const ProfileOp profile("norm");
  return norm(x, p, Shape{});
}

Tensor logsumexp(const Tensor& x, const Shape& dims, bool keepdim) {
  const ProfileOp profile("logsumexp");
  check_floating("logsumexp", x);
  const DimSet set = dim_set("logsumexp", x, dims);
  const DType compute = compute_dtype(x.dtype());
  const Tensor shift =
      map(reduce<Numbers::real>(x, set, compute, Plain<Maximal>{}), FiniteOrZero{});
  const Tensor total = reduce<Numbers::real>(x, set, compute, CentredExps{}, shift);
  const Tensor wide = gradient_like(total, LogPlus{}, total, shift);
  Tensor out = drop_dims(to(wide, x.dtype()), set, keepdim);
  if (recording(x)) {
    record("logsumexp", out, inputs(x),
           [x = Saved(x), wide = Saved::output(wide), set](const Tensor& g, Gradients& to) {
             const Tensor& value = x.get("logsumexp");
             const Tensor thin = restore_dims(g, value.shape(), set);
             to.set(0,
                    gradient_like(value, LogSumExpGradient{}, thin, value, wide.get("logsumexp")));
           });
  }
  return out;
}

}  // namespace weft
