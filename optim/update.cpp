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

template void sgd_update(const SgdStep&, float*, const float*, float*, int64_t);
template void sgd_update(const SgdStep&, double*, const double*, double*, int64_t);
template void adam_update(const AdamStep&, float*, const float*, float*, float*, int64_t);
template void adam_update(const AdamStep&, double*, const double*, double*, double*, int64_t);

}  // namespace weft::optim
