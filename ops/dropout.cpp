#include "ops/dropout.h"

#include "core/parallel.h"
#include "core/profiler.h"
#include "core/random.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/elementwise.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Whether each element is kept, 0 or 1, in logical order.
Tensor kept(const Shape& shape, double p, const RandomKey& key) {
  const Tensor mask = empty(shape);
  auto* out = mask.data<float>();
  const auto threshold = static_cast<float>(p);
  parallel_for(0, mask.numel(), kGrain, [&](int64_t begin, int64_t end) {
    fill_uniform(key, static_cast<uint64_t>(begin), out + begin, end - begin);
    for (int64_t i = begin; i < end; ++i)
      out[i] = out[i] >= threshold ? 1.0f : 0.0f;
  });
  return mask;
}

struct Keep {
  double factor;
  template <class V>
  V operator()(V x, V keep) const {
    // Not x * 0: a dropped infinity or NaN is dropped.
    return functors::where(keep == functors::constant<V>(0), functors::constant<V>(0),
                           x * functors::constant<V>(factor));
  }
};

Tensor apply_mask(const Tensor& x, double p, const RandomKey& key) {
  Tensor out = empty_like(x);
  detail::apply<Keep, detail::Domain::real>(out, x.dtype(), {p < 1 ? 1 / (1 - p) : 0}, x,
                                            kept(x.shape(), p, key));
  return out;
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
  const ProfileOp profile("dropout");
  detail::check_defined("dropout", x);
  WEFT_CHECK(p >= 0 && p <= 1, "dropout", "expected a probability in [0, 1], got ", p);
  WEFT_CHECK(is_floating(x.dtype()), "dropout", "expected a floating dtype, got ", x.dtype());
  if (!training || p == 0) return x;
  const RandomKey key = random_state().take();
  Tensor out = apply_mask(x, p, key);
  if (recording(x)) {
    record("dropout", out, inputs(x),
           [p, key](const Tensor& g, Gradients& to) { to.set(0, apply_mask(g, p, key)); });
  }
  return out;
}

}  // namespace weft
