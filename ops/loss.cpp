// The elementwise losses: compositions, whose gradients follow from their parts.
#include "ops/loss.h"

#include "core/profiler.h"
#include "ops/copy.h"
#include "ops/detail/elementwise.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/where.h"

namespace weft {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean:
      return mean(losses);
    case Reduction::sum:
      return sum(losses);
    default:
      return losses;
  }
}

// 16-bit floats as f32: squares and logarithms that were rounded in between would be far off.
Tensor wide(const Tensor& x) {
  return to(x, compute_dtype(x.dtype()));
}

void check_pair(const char* op, const Tensor& x, const Tensor& target) {
  detail::check_defined(op, x);
  detail::check_defined(op, target);
  WEFT_CHECK(x.shape() == target.shape(), op, "expected a target of shape ", x.shape(), ", got ",
             target.shape());
  WEFT_CHECK(is_floating(x.dtype()) && is_floating(target.dtype()), op,
             "expected floating dtypes, got ", x.dtype(), " and ", target.dtype());
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const ProfileOp profile("mse_loss");
  check_pair("mse_loss", x, target);
  return reduced(square(wide(x) - wide(target)), reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  const ProfileOp profile("l1_loss");
  check_pair("l1_loss", x, target);
  return reduced(abs(wide(x) - wide(target)), reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, Reduction reduction) {
  const ProfileOp profile("smooth_l1_loss");
  check_pair("smooth_l1_loss", x, target);
  WEFT_CHECK(beta >= 0, "smooth_l1_loss", "expected a beta of 0 or more, got ", beta);
  if (beta == 0) return l1_loss(x, target, reduction);
  const Tensor distance = abs(wide(x) - wide(target));
  const Tensor losses =
      where(lt(distance, beta), square(distance) * (0.5 / beta), distance - 0.5 * beta);
  return reduced(losses, reduction);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& targets, const Tensor& positive_weight,
                       Reduction reduction) {
  const ProfileOp profile("bce_with_logits");
  check_pair("bce_with_logits", logits, targets);
  const Tensor x = wide(logits);
  const Tensor target = wide(targets);
  // -log sigmoid(x), written so that no exponential can overflow.
  const Tensor negative_log = log1p(exp(-abs(x))) + maximum(-x, 0.0);
  const Tensor weight =
      positive_weight.defined() ? (wide(positive_weight) - 1.0) * target + 1.0 : Tensor();
  const Tensor losses =
      (1.0 - target) * x + (weight.defined() ? weight * negative_log : negative_log);
  return reduced(losses, reduction);
}

}  // namespace weft
