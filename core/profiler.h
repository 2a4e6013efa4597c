// Where a thread's time goes: by operator and by layer, forward and backward apart, with the
// arithmetic and the memory traffic that operators report of themselves.
//
//   Profiler profiler;
//   {
//     const ProfilerScope scope(profiler);  // from here on this thread reports to it
//     … training steps …
//   }
//   for (const ProfileEntry& entry : profiler.entries()) …
//
// nn/profile.h makes a table of it. An operator opens a ProfileOp for its lifetime and says with
// profile_work what it does; backward is reported by the engine, under the layer that the
// operator's forward ran in. An operator that is made of others counts as itself: what they take
// and report is its own. While a thread has no profiler, all of this is a test of one pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

// One operator in one layer.
struct ProfileEntry {
  const void* layer = nullptr;  // the module that was being called; null outside all
  const char* op = "";
  bool backward = false;
  int64_t calls = 0;
  double seconds = 0;
  int64_t flops = 0;  // additions and multiplications of its definition
  int64_t bytes = 0;  // that it must at least read and write
};

// Belongs to one thread at a time.
class Profiler {
 public:
  // In the order in which they first ran.
  const std::vector<ProfileEntry>& entries() const { return entries_; }
  void reset() { entries_.clear(); }

  // What follows is called through the scopes below.
  bool open(const char* op, bool backward);
  void close();
  void add_work(int64_t flops, int64_t bytes);
  const void* layer() const { return layer_; }
  const void* enter(const void* layer);
  // Leaves the open operator, if there is one, and says which that was.
  int64_t suspend();
  void resume(int64_t suspended);

 private:
  static constexpr int64_t kNone = -1;
  size_t entry_of(const char* op, bool backward);
  void charge();

  std::vector<ProfileEntry> entries_;
  const void* layer_ = nullptr;
  int64_t current_ = kNone;  // the open operator's entry
  double began_ = 0;
  size_t hint_ = 0;  // where the next entry is likely to be
};

namespace detail {
// Of the initial thread-local model: read without a call.
extern thread_local constinit Profiler* t_profiler __attribute__((tls_model("initial-exec")));
}

// That of the calling thread, or null.
inline Profiler* current_profiler() {
  return detail::t_profiler;
}

// Makes `profiler` the calling thread's for its lifetime.
class ProfilerScope {
 public:
  explicit ProfilerScope(Profiler& profiler) : before_(detail::t_profiler) {
    detail::t_profiler = &profiler;
  }
  ~ProfilerScope() { detail::t_profiler = before_; }
  ProfilerScope(const ProfilerScope&) = delete;
  ProfilerScope& operator=(const ProfilerScope&) = delete;

 private:
  Profiler* before_;
};

// An operator at work. `op` is a string literal.
class ProfileOp {
 public:
  explicit ProfileOp(const char* op, bool backward = false) {
    if (Profiler* profiler = current_profiler()) [[unlikely]]
      profiler_ = profiler->open(op, backward) ? profiler : nullptr;
  }
  ~ProfileOp() {
    if (profiler_) [[unlikely]]
      profiler_->close();
  }
  ProfileOp(const ProfileOp&) = delete;
  ProfileOp& operator=(const ProfileOp&) = delete;

 private:
  Profiler* profiler_ = nullptr;
};

// What the open operator does, as far as it has not said so yet.
inline void profile_work(int64_t flops, int64_t bytes) {
  if (Profiler* profiler = current_profiler()) [[unlikely]]
    profiler->add_work(flops, bytes);
}

// A layer at work: operators within are its own, unless they are in a layer further inside.
class ProfileLayer {
 public:
  explicit ProfileLayer(const void* layer) : profiler_(current_profiler()) {
    if (profiler_) [[unlikely]]
      outer_ = profiler_->enter(layer);
  }
  ~ProfileLayer() {
    if (profiler_) [[unlikely]]
      profiler_->enter(outer_);
  }
  ProfileLayer(const ProfileLayer&) = delete;
  ProfileLayer& operator=(const ProfileLayer&) = delete;

 private:
  Profiler* profiler_;
  const void* outer_ = nullptr;
};

// Inside an operator, a place from which others are reported again: a function that is run anew.
class ProfileInside {
 public:
  ProfileInside() : profiler_(current_profiler()) {
    if (profiler_) [[unlikely]]
      suspended_ = profiler_->suspend();
  }
  ~ProfileInside() {
    if (profiler_) [[unlikely]]
      profiler_->resume(suspended_);
  }
  ProfileInside(const ProfileInside&) = delete;
  ProfileInside& operator=(const ProfileInside&) = delete;

 private:
  Profiler* profiler_;
  int64_t suspended_ = 0;
};

}  // namespace weft
