// Compiles every row of elementwise.def as CUDA kernels: the proof that a functor is written once
// for both devices. Nothing here runs; a functor that only a CPU could take fails this compilation.
#include "ops/detail/functors.h"

#include <cuda_bf16.h>

namespace weft::functors {
namespace {

// How a kernel reads and writes one element: 16-bit floats widen at the load and narrow at the
// store.
template <class T>
struct Access {
  using Value = T;
  static __device__ Value load(const T* from) { return *from; }
  static __device__ void store(T* to, Value value) { *to = value; }
};
template <>
struct Access<__nv_bfloat16> {
  using Value = float;
  static __device__ Value load(const __nv_bfloat16* from) { return __bfloat162float(*from); }
  static __device__ void store(__nv_bfloat16* to, Value value) { *to = __float2bfloat16(value); }
};

__device__ int64_t element() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// a is the input x or the output y, as the functor asks.
template <class F, class T>
__global__ void unary_kernel(F f, const T* a, const T* g, T* y, T* dx, int64_t count) {
  using A = Access<T>;
  const int64_t i = element();
  if (i >= count) return;
  const auto value = A::load(a + i);
  const auto gradient = A::load(g + i);
  A::store(y + i, f.fwd(value));
  if constexpr (F::saves == Saves::nothing) {
    A::store(dx + i, f.bwd(gradient));
  } else {
    A::store(dx + i, f.bwd(gradient, value));
  }
}

template <class F>
struct GradientA {
  F f;
  template <class... V>
  __device__ auto operator()(V... v) const {
    return f.bwd_a(v...);
  }
};
template <class F>
struct GradientB {
  F f;
  template <class... V>
  __device__ auto operator()(V... v) const {
    return f.bwd_b(v...);
  }
};

template <Uses uses, class Member, class V>
__device__ V gradient_of(Member member, V g, V a, V b) {
  if constexpr (uses == Uses::passes) {
    return g;
  } else if constexpr (uses == Uses::nothing) {
    return member(g);
  } else if constexpr (uses == Uses::a) {
    return member(g, a);
  } else if constexpr (uses == Uses::b) {
    return member(g, b);
  } else {
    return member(g, a, b);
  }
}

template <class F, class T>
__global__ void binary_kernel(F f, const T* a, const T* b, const T* g, T* y, T* da, T* db,
                              int64_t count) {
  using A = Access<T>;
  const int64_t i = element();
  if (i >= count) return;
  const auto left = A::load(a + i);
  const auto right = A::load(b + i);
  const auto gradient = A::load(g + i);
  A::store(y + i, f.fwd(left, right));
  A::store(da + i, gradient_of<F::a_uses>(GradientA<F>{f}, gradient, left, right));
  A::store(db + i, gradient_of<F::b_uses>(GradientB<F>{f}, gradient, left, right));
}

// Functions of numbers of one kind to bool, or to their own kind (the rows that keep integers).
template <class F, class T, class... In>
__global__ void plain_kernel(F f, T* out, int64_t count, const In*... in) {
  const int64_t i = element();
  if (i < count) out[i] = static_cast<T>(f.fwd(in[i]...));
}

struct Reals {};
struct Any {};
using real = Reals;
using any = Any;

template <class F>
void unary(F f, Reals) {
  unary_kernel<F, float><<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, 0);
  unary_kernel<F, double><<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, 0);
  unary_kernel<F, __nv_bfloat16><<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, 0);
}
template <class F>
void unary(F f, Any) {
  unary(f, Reals{});
  plain_kernel<F, int64_t, int64_t><<<1, 1>>>(f, nullptr, 0, nullptr);
}

template <class F>
void binary(F f, Reals) {
  binary_kernel<F, float><<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0);
  binary_kernel<F, double><<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0);
  binary_kernel<F, __nv_bfloat16>
      <<<1, 1>>>(f, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0);
}
template <class F>
void binary(F f, Any) {
  binary(f, Reals{});
  plain_kernel<F, int64_t, int64_t, int64_t><<<1, 1>>>(f, nullptr, 0, nullptr, nullptr);
}

template <class F>
void predicate(F f) {
  plain_kernel<F, bool, float><<<1, 1>>>(f, nullptr, 0, nullptr);
  plain_kernel<F, bool, double><<<1, 1>>>(f, nullptr, 0, nullptr);
  plain_kernel<F, bool, int64_t><<<1, 1>>>(f, nullptr, 0, nullptr);
}
template <class F>
void compare(F f) {
  plain_kernel<F, bool, float, float><<<1, 1>>>(f, nullptr, 0, nullptr, nullptr);
  plain_kernel<F, bool, double, double><<<1, 1>>>(f, nullptr, 0, nullptr, nullptr);
  plain_kernel<F, bool, int64_t, int64_t><<<1, 1>>>(f, nullptr, 0, nullptr, nullptr);
}

}  // namespace

// External, so that nothing above is dropped as unused.
void compile_every_row() {
#define WEFT_UNARY(name, functor, domain, low, high, reference) unary(functor{}, domain{});
#define WEFT_UNARY_1(name, functor, domain, low, high, parameter, value, test_value, reference) \
  unary(functor{test_value}, domain{});
#define WEFT_UNARY_2(name, functor, domain, low, high, first, first_value, first_test, second, \
                     second_value, second_test, reference)                                     \
  unary(functor{first_test, second_test}, domain{});
#define WEFT_BINARY(name, functor, domain, low_a, high_a, low_b, high_b, reference) \
  binary(functor{}, domain{});
#define WEFT_COMPARE(name, functor, reference) compare(functor{});
#define WEFT_PREDICATE(name, functor, reference) predicate(functor{});
#include "ops/elementwise.def"
}

}  // namespace weft::functors
