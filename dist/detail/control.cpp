#include "dist/detail/control.h"

#include "dist/communicator.h"
#include "dist/detail/control_message.h"
#include "dist/detail/verdict_text.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace weft::dist::detail {
namespace {

Frame frame_of(ControlMessage kind, uint64_t communicator, const Verdict& verdict) {
  return Frame(kind)
      .put(static_cast<int64_t>(communicator))
      .put(verdict.contract_error ? 1 : 0)
      .put(verdict.text);
}

}  // namespace

void Control::serve(std::function<void()> nudge) {
  nudge_ = std::move(nudge);
  thread_ = std::thread([this] { run(); });
}

Control::~Control() {
  if (!thread_.joinable()) return;
  const Frame farewell = options_.rank == 0 ? Frame(gone).put(0).put(kLeft) : Frame(leaving);
  if (options_.rank == 0) {
    tell_all(farewell);
  } else {
    tell(0, farewell);
  }
  // Until all have left, or it is known that something has gone wrong; rank 0 serves the others
  // for as long as they may be silent.
  const double start = clock_seconds();
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      const bool failed = !verdicts_.empty() || of_the_job_.has_value();
      const double patience = failed               ? 2
                              : options_.rank == 0 ? options_.timeout_seconds
                                                   : std::min(5.0, options_.timeout_seconds);
      if (all_gone() || clock_seconds() - start > patience) break;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    stopping_ = true;
  }
  wake();
  thread_.join();
}

bool Control::all_gone() const {
  // Higher ranks may still come for the job's verdict.
  if (of_the_job_) return visits_ >= options_.size - 1 - options_.rank;
  for (int r = 0; r < options_.size; ++r) {
    if (r != options_.rank && fates_[static_cast<size_t>(r)].empty()) return false;
  }
  return true;
}

void Control::wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void Control::tell(int rank, const Frame& frame) {
  const std::lock_guard lock(writing_);
  const Peer& peer = peers_[static_cast<size_t>(options_.rank == 0 ? rank : 0)];
  if (peer.socket.valid() && peer.open) peer.socket.write(frame);
}

void Control::tell_all(const Frame& frame, int but) {
  for (int r = 1; r < options_.size; ++r) {
    if (r != but) tell(r, frame);
  }
}

std::string Control::fate(int rank, uint64_t communicator) const {
  const std::lock_guard lock(mutex_);
  const std::string& fate = fates_[static_cast<size_t>(rank)];
  if (!fate.empty()) return fate;
  return left_.count({rank, communicator}) != 0 ? kLeft : "";
}

std::optional<Verdict> Control::verdict(uint64_t communicator) const {
  const std::lock_guard lock(mutex_);
  const auto at = verdicts_.find(communicator);
  if (at != verdicts_.end()) return at->second;
  return of_the_job_;
}

std::optional<Verdict> Control::await_verdict(uint64_t communicator, double seconds) const {
  const double deadline = clock_seconds() + seconds;
  for (;;) {
    if (auto found = verdict(communicator)) return found;
    if (clock_seconds() > deadline) return std::nullopt;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(5));
  }
}

void Control::propose(uint64_t communicator, const Verdict& verdict) {
  bool alone = false;
  {
    const std::lock_guard lock(mutex_);
    alone = options_.rank == 0 || !fates_[0].empty();
  }
  if (alone) {
    decide(communicator, verdict);
  } else {
    tell(0, frame_of(proposed, communicator, verdict));
  }
}

void Control::decide(uint64_t communicator, const Verdict& verdict) {
  {
    const std::lock_guard lock(mutex_);
    if (!verdicts_.emplace(communicator, verdict).second) return;
  }
  if (options_.rank == 0) tell_all(frame_of(decided, communicator, verdict));
  changed_.notify_all();
  if (nudge_) nudge_();
}

void Control::leave(uint64_t communicator) {
  const Frame frame = Frame(left).put(options_.rank).put(static_cast<int64_t>(communicator));
  if (options_.rank == 0) {
    tell_all(frame);
  } else {
    tell(0, frame);
  }
}

void Control::mark_left(int rank, uint64_t communicator) {
  {
    const std::lock_guard lock(mutex_);
    left_.emplace(rank, communicator);
  }
  if (nudge_) nudge_();
}

void Control::mark_gone(int rank, const std::string& fate) {
  {
    const std::lock_guard lock(mutex_);
    std::string& known = fates_[static_cast<size_t>(rank)];
    if (!known.empty()) return;
    known = fate;
  }
  if (options_.rank == 0) tell_all(Frame(gone).put(rank).put(fate), rank);
  changed_.notify_all();
  if (nudge_) nudge_();
}

Frame Control::own_answer(int to) const {
  const Whereabouts::Snapshot seen = whereabouts_.read();
  return Frame(answer)
      .put(to)
      .put(options_.rank)
      .put(static_cast<int64_t>(seen.state))
      .put(static_cast<int64_t>(seen.communicator))
      .put(seen.sequence)
      .put(static_cast<int64_t>((clock_seconds() - seen.since) * 1e6))
      .put(seen.call);
}

void Control::take_answer(int from, Frame& frame) {
  Whereabouts::Snapshot seen;
  seen.state = static_cast<Whereabouts::State>(frame.number());
  seen.communicator = static_cast<uint64_t>(frame.number());
  seen.sequence = frame.number();
  const double ago = static_cast<double>(frame.number()) * 1e-6;
  seen.call = frame.text();
  const std::lock_guard lock(mutex_);
  answers_[from] = {seen, ago};
  changed_.notify_all();
}

std::optional<std::pair<Whereabouts::Snapshot, double>> Control::ask(int rank, double seconds) {
  {
    const std::lock_guard lock(mutex_);
    answers_.erase(rank);
  }
  tell(options_.rank == 0 ? rank : 0, Frame(question).put(rank).put(options_.rank));
  const double deadline = clock_seconds() + seconds;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto at = answers_.find(rank);
    if (at != answers_.end()) return at->second;
    if (clock_seconds() > deadline) return std::nullopt;
    changed_.wait_for(lock, std::chrono::milliseconds(5));
  }
}

// `from` is the rank at the other end.
void Control::hear(int from, Frame frame) {
  switch (static_cast<ControlMessage>(frame.kind())) {
    case refused:  // rank 0 gave the job up after this rank had joined
      if (from == 0) decide_job({frame.text(), false});
      return;
    case hello:
    case welcome:
    case piece:
    case pieces:
      return;  // joining is over
    case gone: {
      const auto rank = static_cast<int>(frame.number());
      return mark_gone(rank, frame.text());
    }
    case leaving:
      return mark_gone(from, kLeft);
    case left: {
      const auto rank = static_cast<int>(frame.number());
      if (options_.rank == 0) tell_all(frame, from);
      return mark_left(rank, static_cast<uint64_t>(frame.number()));
    }
    case proposed:
    case decided: {
      const auto communicator = static_cast<uint64_t>(frame.number());
      const bool contract_error = frame.number() != 0;
      return decide(communicator, {frame.text(), contract_error});
    }
    case question: {
      const auto to = static_cast<int>(frame.number());
      const auto asks = static_cast<int>(frame.number());
      if (to == options_.rank) return tell(asks, own_answer(asks));
      return tell(to, frame);
    }
    case answer: {
      const auto to = static_cast<int>(frame.number());
      if (to != options_.rank) return tell(to, frame);
      const auto about = static_cast<int>(frame.number());
      return take_answer(about, frame);
    }
  }
}

void Control::ended(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  {
    const std::lock_guard lock(writing_);
    peer.open = false;
    peer.socket.close();
  }
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    known = !fates_[static_cast<size_t>(rank)].empty();
  }
  if (options_.rank != 0 && !known) {
    lose_hub();
  } else if (!known) {
    mark_gone(rank, concat({"died (process ", peer.process, ")"}));
  }
  changed_.notify_all();
}

// Rank 0 has died: the lowest rank that can be reached decides.
void Control::lose_hub() {
  std::optional<Verdict> verdict;
  {
    const std::lock_guard lock(mutex_);
    verdict = of_the_job_;
  }
  for (int r = 1; r < options_.rank && !verdict; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    FrameSocket socket(connect_to(peer.address, peer.port, 2));
    if (!socket.valid()) continue;
    try {
      std::optional<Frame> frame = socket.read(clock_seconds() + 5);
      if (!frame || frame->kind() != decided) continue;
      (void)frame->number();
      const bool contract_error = frame->number() != 0;
      verdict = Verdict{frame->text(), contract_error};
    } catch (const Error&) {
      continue;
    }
  }
  const std::string fate = concat({"died (process ", peers_[0].process, ")"});
  if (!verdict) {
    const Whereabouts::Snapshot seen = whereabouts_.read();
    const bool inside = seen.state == Whereabouts::State::inside;
    const std::string op = inside ? seen.call.substr(0, seen.call.find(' ')) : "communicator";
    const std::vector<std::string> story = {"rank 0: it " + fate};
    verdict =
        Verdict{missing_text(op, options_.size, inside ? seen.call : "the job", story), false};
  }
  decide_job(*verdict);
  mark_gone(0, fate);
}

// The first to be known stands.
void Control::decide_job(const Verdict& verdict) {
  {
    const std::lock_guard lock(mutex_);
    if (!of_the_job_) of_the_job_ = verdict;
  }
  changed_.notify_all();
  if (nudge_) nudge_();
}

void Control::hand_out_verdicts() {
  std::optional<Verdict> verdict;
  {
    const std::lock_guard lock(mutex_);
    verdict = of_the_job_;
  }
  if (!verdict || visitors_.empty()) return;
  for (const FrameSocket& visitor : visitors_)
    visitor.write(frame_of(decided, 0, *verdict));
  const std::lock_guard lock(mutex_);
  visits_ += static_cast<int>(visitors_.size());
  visitors_.clear();
}

// What has arrived in full; at the end of the connection, or where it is not what a rank would say,
// that the rank has ended.
void Control::take_frames(int from, bool there) {
  try {
    while (auto frame = peers_[static_cast<size_t>(from)].socket.next())
      hear(from, std::move(*frame));
  } catch (const Error&) {
    there = false;
  }
  if (!there) ended(from);
}

void Control::run() {
  // While this rank still joined, others may have said what a rank that serves is to hear.
  try {
    for (Frame& frame : std::exchange(heard_early_, {}))
      hear(0, std::move(frame));
  } catch (const Error&) {
    ended(0);
  }
  for (int r = 0; r < options_.size; ++r) {
    if (peers_[static_cast<size_t>(r)].socket.valid()) take_frames(r, true);
  }
  for (;;) {
    std::vector<pollfd> look{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    std::vector<int> ranks;
    for (int r = 0; r < options_.size; ++r) {
      const Peer& peer = peers_[static_cast<size_t>(r)];
      if (!peer.socket.valid()) continue;
      look.push_back({peer.socket.get(), POLLIN, 0});
      ranks.push_back(r);
    }
    poll(look.data(), look.size(), 25);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    uint64_t woken = 0;
    (void)!read(wake_.get(), &woken, sizeof woken);
    if (look[1].revents != 0) {
      FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.valid() && options_.rank != 0) {
        watch_connection(socket.get());
        visitors_.emplace_back(std::move(socket));
      }
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (look[i + 2].revents == 0) continue;
      const bool there = peers_[static_cast<size_t>(ranks[i])].socket.fill();
      take_frames(ranks[i], there);
    }
    hand_out_verdicts();
    nudge_();
  }
}

}  // namespace weft::dist::detail
