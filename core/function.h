// A callable of any type with a given signature: what std::function is, without the weight of
// <functional>, which would be most of what a small program compiles.
#pragma once

#include "core/ref.h"

#include <concepts>
#include <cstddef>
#include <utility>

namespace weft {

template <class Signature>
class Function;

// Copies share one callable, its state included. An empty one must not be called. As thread safe
// as what it calls.
template <class R, class... Args>
class Function<R(Args...)> {
 public:
  Function() = default;
  Function(std::nullptr_t) {}
  // Anything that can be called so. Takes it over; results are converted to R.
  template <class F>
  requires(!std::same_as<F, Function> && std::is_invocable_r_v<R, F&, Args...>) Function(F callable)
      : target_(new TargetOf<F>(std::move(callable))) {}

  explicit operator bool() const { return static_cast<bool>(target_); }
  R operator()(Args... args) const { return target_->call(static_cast<Args&&>(args)...); }

 private:
  struct Target : RefCounted {
    virtual R call(Args... args) = 0;
  };
  template <class F>
  struct TargetOf final : Target {
    explicit TargetOf(F&& from) : callable(std::move(from)) {}
    R call(Args... args) override { return callable(static_cast<Args&&>(args)...); }
    F callable;
  };

  Ref<Target> target_;
};

}  // namespace weft
