// Intrusive reference counting for the objects behind handles (tensors, storages, graph nodes).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft {

// Base of objects shared through Ref. Counting is thread safe; what the object holds is not, unless
// it says so.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    // The sole owner may skip the locked decrement: nobody else can gain a reference meanwhile.
    if (refs_.load(std::memory_order_acquire) == 1 ||
        refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const_cast<RefCounted*>(this)->destroy();
    }
  }
  int32_t use_count() const { return refs_.load(std::memory_order_acquire); }

 protected:
  virtual ~RefCounted() = default;
  virtual void destroy() { delete this; }

 private:
  mutable std::atomic<int32_t> refs_{0};
};

// Owning pointer to a RefCounted; null by default.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U> other)
  noexcept : object_(other.detach()) {}
  ~Ref() {
    if (object_) object_->release();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }
  // Gives up ownership without releasing.
  T* detach() { return std::exchange(object_, nullptr); }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace weft
