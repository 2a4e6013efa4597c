#include "ops/machine_speed.h"

#include "autograd/grad_mode.h"
#include "core/parallel.h"
#include "core/tensor.h"
#include "ops/matmul.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

namespace weft {
namespace {

constexpr int kRounds = 7;

template <class F>
double least_seconds(const F& body) {
  using Clock = std::chrono::steady_clock;
  body();  // memory is touched, caches are warm
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) {
    const auto start = Clock::now();
    body();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return least;
}

Tensor filled(const Shape& shape, float value) {
  const Tensor tensor = empty(shape);
  std::fill_n(tensor.data<float>(), tensor.numel(), value);
  return tensor;
}

}  // namespace

MachineSpeed measure_machine_speed() {
  const NoGrad no_grad;
  MachineSpeed speed;
  {
    constexpr int64_t kSize = 1024;
    const Tensor a = filled({kSize, kSize}, 0.5f);
    const Tensor b = filled({kSize, kSize}, 0.25f);
    speed.flops =
        2.0 * kSize * kSize * kSize / least_seconds([&] { const Tensor c = matmul(a, b); });
  }
  const Tensor from = filled({int64_t{32} << 20}, 1);
  const Tensor to = filled(from.shape(), 0);
  const int64_t pieces = num_threads();
  const double seconds = least_seconds([&] {
    parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = from.bytes() * begin / pieces;
      const int64_t last = from.bytes() * end / pieces;
      std::memcpy(to.raw() + first, from.raw() + first, static_cast<size_t>(last - first));
    });
  });
  speed.bytes = 2.0 * static_cast<double>(from.bytes()) / seconds;
  return speed;
}

}  // namespace weft
