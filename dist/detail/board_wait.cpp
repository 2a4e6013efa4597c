// Meeting on the board: arrivals, waiting for them, and finding out who does not come and why.
#include "dist/detail/board_wait.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

namespace weft::dist::detail {
namespace {

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

std::string list_of(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items)
    text += (text.empty() ? "" : "; ") + item;
  return text;
}

}  // namespace

void BoardCommunicator::arrive() {
  board_.seat(rank()).arrived.store(++phase_, std::memory_order_seq_cst);
  // The last to come wakes the others; who comes earlier has nothing to tell them.
  if (board_.has_sleepers() && board_.all_at(phase_)) board_.wake();
}

void BoardCommunicator::await_all(Present& present) {
  int next = 0;
  await(
      present,
      [&] {
        while (next < size() &&
               board_.seat(next).arrived.load(std::memory_order_seq_cst) >= phase_) {
          ++next;
        }
        return next == size();
      },
      [&](int r) { return board_.seat(r).arrived.load(std::memory_order_seq_cst) < phase_; });
}

std::string BoardCommunicator::name_of_rank(int rank) const {
  const int own = ranks_[static_cast<size_t>(rank)];
  if (own == rank) return concat({"rank ", rank});
  return concat({"rank ", rank, " (of the job: ", own, ")"});
}

std::string BoardCommunicator::story_of(int rank, const Present& present, const std::string& fate,
                                        double waited) {
  const Whereabouts::Snapshot seen = world_->whereabouts(ranks_[static_cast<size_t>(rank)]).read();
  const bool gone =
      board_.seat(rank).state.load(std::memory_order_acquire) == Seat::left || !fate.empty();
  std::string text = name_of_rank(rank) + ": it ";
  if (!fate.empty()) {
    text += fate;
  } else if (gone) {
    text += "has left";
  } else {
    text += "did not come within " + seconds(waited);
  }
  if (seen.state == Whereabouts::State::nowhere) return text + ", without any call so far";
  const double ago = clock_seconds() - seen.since;
  const bool same = seen.communicator == board_.number() && seen.sequence == present.sequence;
  if (seen.state == Whereabouts::State::after || gone) {
    text += concat({", last seen in ", seen.call});
    if (!gone) text += concat({", which it left ", seconds(ago), " ago"});
  } else {
    text += concat({same ? ", it is in the midst of " : ", it is elsewhere: in ", seen.call,
                    " for ", seconds(ago)});
  }
  return text;
}

void BoardCommunicator::report_missing(const Present& present, const std::vector<int>& missing,
                                       double waited) {
  std::vector<std::string> gone;
  std::vector<std::string> late;
  for (const int r : missing) {
    std::string fate = world_->fate(ranks_[static_cast<size_t>(r)]);
    const bool left = board_.seat(r).state.load(std::memory_order_acquire) == Seat::left;
    // It may have come, and left, since it was found missing.
    if ((!fate.empty() || left) && present.still_missing(r)) {
      gone.push_back(story_of(r, present, fate, waited));
    } else {
      late.push_back(story_of(r, present, "", waited));
    }
  }
  if (gone.empty() && waited < options().timeout_seconds) return;
  const auto& stories = gone.empty() ? late : gone;
  fail(
      concat({"[", op_name(present.call), "] expected all ", size(), " ranks in ",
              describe(present.contract, present.sequence, name()), ", got no ", list_of(stories)}),
      false);
}

void BoardCommunicator::fail(const std::string& verdict, bool contract_error) {
  board_.decide(verdict, contract_error);
  raise();
}

void BoardCommunicator::raise() {
  bool contract_error = false;
  const std::string verdict = board_.verdict(contract_error);
  world_->remember(verdict, contract_error);
  // Memory that others are reading or writing must not be freed under them. They look at the
  // verdict before they begin, so who is not busy by now will not be. A rank that is dead or
  // stopped in the midst of it is not waited for beyond the timeout.
  const double start = clock_seconds();
  for (int r = 0; r < size(); ++r) {
    while (r != rank() && board_.seat(r).busy.load(std::memory_order_seq_cst) != 0 &&
           clock_seconds() - start < options().timeout_seconds &&
           world_->fate(ranks_[static_cast<size_t>(r)]).empty()) {
      sched_yield();
    }
  }
  if (contract_error) throw ContractError(verdict);
  throw CommunicationError(verdict);
}

void BoardCommunicator::begin_touching() {
  board_.seat(rank()).busy.store(1, std::memory_order_seq_cst);
  if (board_.decided()) {
    end_touching();
    raise();
  }
}

void BoardCommunicator::end_touching() {
  board_.seat(rank()).busy.store(0, std::memory_order_seq_cst);
}

void BoardCommunicator::abort(const std::string& reason) {
  // A rank that fails because another communicator has failed passes on what happened there.
  bool contract_error = false;
  const std::string verdict = world_->remembered(contract_error);
  if (!verdict.empty()) return board_.decide(verdict, contract_error);
  const Whereabouts::Snapshot seen =
      world_->whereabouts(ranks_[static_cast<size_t>(rank())]).read();
  std::string text = concat({"[communicator] expected all ", size(), " ranks of '", name(),
                             "', got no ", name_of_rank(rank()), ": it gave up"});
  if (seen.state != Whereabouts::State::nowhere)
    text += concat({seen.state == Whereabouts::State::inside ? " in " : " after ", seen.call});
  if (!reason.empty()) text += ": " + reason;
  board_.decide(text, false);
}

}  // namespace weft::dist::detail
