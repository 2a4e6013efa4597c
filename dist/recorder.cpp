#include "dist/recorder.h"

#include <algorithm>
#include <ctime>

namespace weft::dist {

double clock_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string describe(const Event& event) {
  std::string text =
      concat({name_of(event.collective), " #", event.sequence, " of '", event.communicator, "'"});
  const bool moves =
      event.collective != Collective::barrier && event.collective != Collective::split;
  if (moves) text += concat({", ", event.count, " x ", event.dtype});
  if (event.collective == Collective::all_reduce ||
      event.collective == Collective::reduce_scatter || event.collective == Collective::reduce) {
    text += concat({", ", name_of(event.op)});
  }
  if (!event.unit.empty()) text += concat({", unit '", event.unit, "'"});
  if (event.tag_end > event.begin) text += concat({" [", event.begin, ", ", event.tag_end, ")"});
  return text;
}

int64_t Recorder::begin(Event event) {
  const std::lock_guard lock(mutex_);
  const auto collective = static_cast<size_t>(event.collective);
  for (Total* total : {&totals_[collective], &by_unit_[event.unit][collective]}) {
    ++total->calls;
    total->sent_bytes += event.sent_bytes;
  }
  const auto at = static_cast<size_t>(next_) % capacity_;
  if (at < ring_.size()) {
    ring_[at] = std::move(event);
  } else {
    ring_.push_back(std::move(event));
  }
  return next_++;
}

void Recorder::started(int64_t number) {
  const std::lock_guard lock(mutex_);
  if (next_ - number <= static_cast<int64_t>(capacity_))
    ring_[static_cast<size_t>(number) % capacity_].start = clock_seconds();
}

double Recorder::ended(int64_t number) {
  const double now = clock_seconds();
  std::unique_lock lock(mutex_);
  if (next_ - number > static_cast<int64_t>(capacity_)) return now;  // written over meanwhile
  Event& event = ring_[static_cast<size_t>(number) % capacity_];
  event.end = now;
  if (!listener_) return now;
  const auto listener = listener_;
  const Event copy = event;
  lock.unlock();
  listener(copy);
  return now;
}

std::vector<Event> Recorder::events() const {
  const std::lock_guard lock(mutex_);
  std::vector<Event> list = ring_;
  if (list.size() == capacity_) {
    const auto oldest = static_cast<int64_t>(static_cast<size_t>(next_) % capacity_);
    std::rotate(list.begin(), list.begin() + oldest, list.end());
  }
  return list;
}

std::array<Recorder::Total, kCollectives> Recorder::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::map<std::string, std::array<Recorder::Total, kCollectives>> Recorder::totals_by_unit() const {
  const std::lock_guard lock(mutex_);
  return by_unit_;
}

void Recorder::reset_totals() {
  const std::lock_guard lock(mutex_);
  totals_ = {};
  by_unit_.clear();
}

double Recorder::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

void Recorder::add_waited(double begin, double end) {
  if (std::this_thread::get_id() != owner_) return;
  std::unique_lock lock(mutex_);
  waited_ += end - begin;
  if (!wait_listener_) return;
  const auto listener = wait_listener_;
  lock.unlock();
  listener(begin, end);
}

void Recorder::set_listener(std::function<void(const Event&)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void Recorder::set_wait_listener(std::function<void(double begin, double end)> listener) {
  const std::lock_guard lock(mutex_);
  wait_listener_ = std::move(listener);
}

}  // namespace weft::dist
