// Meeting on the board: arrivals, waiting for them, and finding out who does not come and why.
#include "dist/detail/board_wait.h"

#include "dist/detail/verdict_text.h"

#include <sched.h>

namespace weft::dist::detail {
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

std::string BoardCommunicator::name_of(int rank) const {
  return name_of_rank(rank, ranks_[static_cast<size_t>(rank)]);
}

std::string BoardCommunicator::story(int rank, const Present& present, const std::string& fate,
                                     double waited) {
  const int of_the_job = ranks_[static_cast<size_t>(rank)];
  Absence absence{name_of(rank), fate, waited, world_->whereabouts(of_the_job).read()};
  if (fate.empty() && board_.seat(rank).state.load(std::memory_order_acquire) == Seat::left)
    absence.fate = "has left";
  absence.ago = clock_seconds() - absence.seen.since;
  absence.same =
      absence.seen.communicator == board_.number() && absence.seen.sequence == present.sequence;
  return story_of(absence);
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
      gone.push_back(story(r, present, fate, waited));
    } else {
      late.push_back(story(r, present, "", waited));
    }
  }
  if (gone.empty() && waited < options().timeout_seconds) return;
  const auto& stories = gone.empty() ? late : gone;
  fail(missing_text(op_name(present.call), size(),
                    describe(present.contract, present.sequence, name()), stories),
       false);
}

void BoardCommunicator::fail(const std::string& verdict, bool contract_error) {
  board_.decide(verdict, contract_error);
  raise();
}

void BoardCommunicator::raise() {
  // This rank touches nothing any more. Others that give up wait for that, as it does for them.
  end_touching();
  bool contract_error = false;
  const std::string verdict = board_.verdict(contract_error);
  world_->remember(verdict, contract_error);
  // Memory that others are reading or writing must not be freed under them. They look at the
  // verdict before they begin, so who is not busy by now will not be. A rank that is dead or
  // stopped in the midst of it is not waited for beyond the timeout.
  AwakeTime awake;
  for (int r = 0; r < size(); ++r) {
    while (board_.seat(r).busy.load(std::memory_order_seq_cst) != 0 &&
           awake.look() < options().timeout_seconds &&
           world_->fate(ranks_[static_cast<size_t>(r)]).empty()) {
      sched_yield();
    }
  }
  if (contract_error) throw ContractError(verdict);
  throw CommunicationError(verdict);
}

void BoardCommunicator::begin_touching() {
  board_.seat(rank()).busy.store(1, std::memory_order_seq_cst);
  if (board_.decided()) raise();
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
  board_.decide(gave_up_text(name(), size(), name_of(rank()), seen, reason), false);
}

}  // namespace weft::dist::detail
