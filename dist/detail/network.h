// What all communicators of one process share that reach other hosts.
#pragma once

#include "dist/detail/control.h"
#include "dist/detail/transport.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace weft::dist::detail {

class Network {
 public:
  Network(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control)
      : transport_(std::move(transport)), control_(std::move(control)) {
    control_->serve([this] { transport_->nudge(); });
  }

  Transport& transport() { return *transport_; }
  Control& control() { return *control_; }

  // A number that no other communicator of the job has; the world's is 0.
  uint64_t new_number() {
    return (next_.fetch_add(1) + 1) * static_cast<uint64_t>(control_->size()) +
           static_cast<uint64_t>(control_->rank());
  }

  // The first verdict that this rank has met: what it gives up with on other communicators.
  void remember(const Verdict& verdict) {
    const std::lock_guard lock(mutex_);
    if (first_.text.empty()) first_ = verdict;
  }
  Verdict remembered() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Control>
      control_;  // goes first: it waits until others need the transport no more
  std::atomic<uint64_t> next_{0};
  mutable std::mutex mutex_;
  Verdict first_;
};

}  // namespace weft::dist::detail
