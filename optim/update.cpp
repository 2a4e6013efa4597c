#include "optim/update.h"

#include <cmath>

// Plain loops, which the compiler turns into vector code: every choice is made outside of them.

namespace weft::optim {
namespace {

enum class Momentum { none, first, plain };

template <Momentum kind, bool decay, bool nesterov, class T>
void sgd_loop(const SgdStep& step, T* __restrict p, const T* __restrict g, T* __restrict m,
              int64_t count) {
  const T minus_lr = static_cast<T>(-step.lr);
  const T weight_decay = static_cast<T>(step.weight_decay);
  const T momentum = static_cast<T>(step.momentum);
  const T share = static_cast<T>(1 - step.dampening);
  for (int64_t i = 0; i < count; ++i) {
    T d = g[i];
    if constexpr (decay) d = std::fma(weight_decay, p[i], d);
    if constexpr (kind != Momentum::none) {
      const T kept = kind == Momentum::first ? d : std::fma(momentum, m[i], share * d);
      m[i] = kept;
      d = nesterov ? std::fma(momentum, kept, d) : kept;
    }
    p[i] = std::fma(minus_lr, d, p[i]);
  }
}

template <Momentum kind, class T>
void sgd_choose(const SgdStep& step, T* p, const T* g, T* m, int64_t count) {
  const bool decay = step.weight_decay != 0;
  if constexpr (kind != Momentum::none) {
    if (step.nesterov) {
      return decay ? sgd_loop<kind, true, true>(step, p, g, m, count)
                   : sgd_loop<kind, false, true>(step, p, g, m, count);
    }
  }
  return decay ? sgd_loop<kind, true, false>(step, p, g, m, count)
               : sgd_loop<kind, false, false>(step, p, g, m, count);
}

enum class Decay { none, gradient, decoupled };

template <Decay decay, class T>
void adam_loop(const AdamStep& step, T* __restrict p, const T* __restrict g, T* __restrict m,
               T* __restrict v, int64_t count) {
  const T shrink = static_cast<T>(1 - step.lr * step.weight_decay);
  const T weight_decay = static_cast<T>(step.weight_decay);
  const T share1 = static_cast<T>(1 - step.beta1);
  const T beta2 = static_cast<T>(step.beta2);
  const T share2 = static_cast<T>(1 - step.beta2);
  const T root = static_cast<T>(std::sqrt(step.correction2));
  const T eps = static_cast<T>(step.eps);
  const T size = static_cast<T>(-step.lr / step.correction1);
  for (int64_t i = 0; i < count; ++i) {
    T d = g[i];
    T x = p[i];
    if constexpr (decay == Decay::gradient) d = std::fma(weight_decay, x, d);
    if constexpr (decay == Decay::decoupled) x *= shrink;
    const T average = std::fma(share1, d - m[i], m[i]);
    const T square = std::fma(beta2, v[i], share2 * d * d);
    m[i] = average;
    v[i] = square;
    p[i] = x + size * average / (std::sqrt(square) / root + eps);
  }
}

template <bool with_momentum, class T>
void lars_loop(const LarsStep& step, T* __restrict p, const T* __restrict g, T* __restrict m,
               int64_t count) {
  const T rate = static_cast<T>(step.lr * step.ratio);
  const T weight_decay = static_cast<T>(step.weight_decay);
  const T momentum = static_cast<T>(step.momentum);
  for (int64_t i = 0; i < count; ++i) {
    T d = rate * std::fma(weight_decay, p[i], g[i]);
    if constexpr (with_momentum) {
      d = std::fma(momentum, m[i], d);
      m[i] = d;
    }
    p[i] -= d;
  }
}

// What LAMB computes for one element before it knows the ratio.
template <class T>
struct LambElement {
  explicit LambElement(const LambStep& step)
      : share1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        share2(static_cast<T>(1 - step.beta2)),
        scale(static_cast<T>(1 / step.correction1)),
        root(static_cast<T>(std::sqrt(step.correction2))),
        eps(static_cast<T>(step.eps)),
        weight_decay(static_cast<T>(step.weight_decay)) {}

  // `m` and `v` become the new averages.
  T direction(T p, T g, T& m, T& v) const {
    m = std::fma(share1, g - m, m);
    v = std::fma(beta2, v, share2 * g * g);
    return std::fma(weight_decay, p, scale * m / (std::sqrt(v) / root + eps));
  }

  T share1, beta2, share2, scale, root, eps, weight_decay;
};

}  // namespace

template <class T>
void sgd_update(const SgdStep& step, T* parameter, const T* gradient, T* momentum, int64_t count) {
  if (step.momentum == 0) {
    sgd_choose<Momentum::none>(step, parameter, gradient, momentum, count);
  } else if (step.first) {
    sgd_choose<Momentum::first>(step, parameter, gradient, momentum, count);
  } else {
    sgd_choose<Momentum::plain>(step, parameter, gradient, momentum, count);
  }
}

template <class T>
void adam_update(const AdamStep& step, T* parameter, const T* gradient, T* average,
                 T* square_average, int64_t count) {
  if (step.weight_decay == 0) {
    adam_loop<Decay::none>(step, parameter, gradient, average, square_average, count);
  } else if (step.decoupled) {
    adam_loop<Decay::decoupled>(step, parameter, gradient, average, square_average, count);
  } else {
    adam_loop<Decay::gradient>(step, parameter, gradient, average, square_average, count);
  }
}

template <class T>
void lars_update(const LarsStep& step, T* parameter, const T* gradient, T* momentum,
                 int64_t count) {
  if (step.momentum == 0) {
    lars_loop<false>(step, parameter, gradient, momentum, count);
  } else {
    lars_loop<true>(step, parameter, gradient, momentum, count);
  }
}

template <class T>
void lamb_update(const LambStep& step, T* __restrict parameter, const T* __restrict gradient,
                 T* __restrict average, T* __restrict square_average, int64_t count) {
  const LambElement<T> element(step);
  const T size = static_cast<T>(-step.lr * step.ratio);
  for (int64_t i = 0; i < count; ++i) {
    T m = average[i];
    T v = square_average[i];
    const T u = element.direction(parameter[i], gradient[i], m, v);
    average[i] = m;
    square_average[i] = v;
    parameter[i] = std::fma(size, u, parameter[i]);
  }
}

template <class T>
void lamb_direction(const LambStep& step, const T* __restrict parameter,
                    const T* __restrict gradient, const T* __restrict average,
                    const T* __restrict square_average, int64_t count, T* __restrict to) {
  const LambElement<T> element(step);
  for (int64_t i = 0; i < count; ++i) {
    T m = average[i];
    T v = square_average[i];
    to[i] = element.direction(parameter[i], gradient[i], m, v);
  }
}

template void sgd_update(const SgdStep&, float*, const float*, float*, int64_t);
template void sgd_update(const SgdStep&, double*, const double*, double*, int64_t);
template void adam_update(const AdamStep&, float*, const float*, float*, float*, int64_t);
template void adam_update(const AdamStep&, double*, const double*, double*, double*, int64_t);
template void lars_update(const LarsStep&, float*, const float*, float*, int64_t);
template void lars_update(const LarsStep&, double*, const double*, double*, int64_t);
template void lamb_update(const LambStep&, float*, const float*, float*, float*, int64_t);
template void lamb_update(const LambStep&, double*, const double*, double*, double*, int64_t);
template void lamb_direction(const LambStep&, const float*, const float*, const float*,
                             const float*, int64_t, float*);
template void lamb_direction(const LambStep&, const double*, const double*, const double*,
                             const double*, int64_t, double*);

}  // namespace weft::optim
