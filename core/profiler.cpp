#include "core/profiler.h"

#include <chrono>
#include <string_view>

namespace weft {
namespace {

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

}  // namespace

thread_local constinit Profiler* detail::t_profiler = nullptr;

// A model has some hundred entries, and each is looked for where the last one was found: steps
// repeat.
size_t Profiler::entry_of(const char* op, bool backward) {
  const size_t count = entries_.size();
  const size_t start = hint_ < count ? hint_ : 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = start + i < count ? start + i : start + i - count;
    const ProfileEntry& entry = entries_[at];
    if (entry.layer == layer_ && entry.backward == backward && std::string_view(entry.op) == op) {
      hint_ = at + 1;
      return at;
    }
  }
  entries_.push_back({.layer = layer_, .op = op, .backward = backward});
  hint_ = count + 1;
  return count;
}

bool Profiler::open(const char* op, bool backward) {
  if (current_ != kNone) return false;
  current_ = static_cast<int64_t>(entry_of(op, backward));
  ++entries_[static_cast<size_t>(current_)].calls;
  began_ = now();
  return true;
}

void Profiler::charge() {
  entries_[static_cast<size_t>(current_)].seconds += now() - began_;
}

void Profiler::close() {
  charge();
  current_ = kNone;
}

void Profiler::add_work(int64_t flops, int64_t bytes) {
  if (current_ == kNone) return;
  ProfileEntry& entry = entries_[static_cast<size_t>(current_)];
  entry.flops += flops;
  entry.bytes += bytes;
}

const void* Profiler::enter(const void* layer) {
  const void* outer = layer_;
  layer_ = layer;
  return outer;
}

int64_t Profiler::suspend() {
  if (current_ != kNone) charge();
  const int64_t suspended = current_;
  current_ = kNone;
  return suspended;
}

void Profiler::resume(int64_t suspended) {
  current_ = suspended;
  if (current_ != kNone) began_ = now();
}

}  // namespace weft
