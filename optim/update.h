// The arithmetic of every optimizer, over flat runs of elements.
//
// Each function updates elements 0 .. count-1 of its runs and looks at nothing else, so a run may
// be a whole parameter, a piece of one, or a piece of a flat buffer. An element is computed by the
// same correctly rounded operations (+ - * / sqrt fma) wherever it lies in its run, and those give
// the same bits in a vector register as alone: moving a border between two runs changes nothing.
//
// T is float or double. Runs must not overlap. 16-bit parameters are stepped through their f32
// masters.
#pragma once

#include <cstdint>

namespace weft::optim {

// Stochastic gradient descent with momentum as PyTorch defines it (Sutskever et al. 2013 up to the
// place of lr):
//   g += weight_decay * p;   m = first ? g : momentum * m + (1 - dampening) * g
//   p -= lr * (nesterov ? g + momentum * m : m)
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // the momentum starts as the gradient
};

// `momentum` is read and written only where step.momentum is not 0; else it may be null.
template <class T>
void sgd_update(const SgdStep& step, T* parameter, const T* gradient, T* momentum, int64_t count);

// Adam (Kingma & Ba 2015, Algorithm 1), with weight decay added to the gradient or, decoupled,
// taken from the parameter (AdamW: Loshchilov & Hutter 2019, Algorithm 2, with its schedule
// multiplier inside lr):
//   decoupled: p *= 1 - lr * weight_decay   else: g += weight_decay * p
//   m += (1 - beta1) * (g - m);   v = beta2 * v + (1 - beta2) * g * g
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct AdamStep {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool decoupled = false;
  double correction1 = 1;  // 1 - beta1^t
  double correction2 = 1;  // 1 - beta2^t
};

template <class T>
void adam_update(const AdamStep& step, T* parameter, const T* gradient, T* average,
                 T* square_average, int64_t count);

// LARS (You, Gitman & Ginsburg 2017, Algorithm 1), with the norms of the whole parameter:
//   ratio = trust * |p| / (|g| + weight_decay * |p|)
//   m = momentum * m + lr * ratio * (g + weight_decay * p);   p -= m
struct LarsStep {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  double trust = 0;
  double ratio = 1;
};

// `momentum` is read and written only where step.momentum is not 0; else it may be null.
template <class T>
void lars_update(const LarsStep& step, T* parameter, const T* gradient, T* momentum, int64_t count);

// LAMB (You et al. 2020, Algorithm 2, phi the identity), with Adam's m and v and the norms of the
// whole parameter and direction:
//   u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + weight_decay * p
//   p -= lr * ratio * u,   ratio = |p| / |u|
struct LambStep {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double correction1 = 1;  // 1 - beta1^t
  double correction2 = 1;  // 1 - beta2^t
  double ratio = 1;
};

template <class T>
void lamb_update(const LambStep& step, T* parameter, const T* gradient, T* average,
                 T* square_average, int64_t count);
// The u that lamb_update is going to take.
template <class T>
void lamb_direction(const LambStep& step, const T* parameter, const T* gradient, const T* average,
                    const T* square_average, int64_t count, T* to);

}  // namespace weft::optim
