#include "dist/detail/board_communicator.h"

#include "dist/detail/board_exchange.h"
#include "dist/detail/board_wait.h"
#include "dist/detail/verdict_text.h"

#include <algorithm>
#include <thread>

namespace weft::dist::detail {

BoardCommunicator::BoardCommunicator(std::shared_ptr<World> world, Board& board, int rank,
                                     std::vector<int> ranks, std::string name,
                                     std::shared_ptr<Recorder> recorder,
                                     CommunicatorOptions options)
    : CommunicatorBase(rank, static_cast<int>(ranks.size()), std::move(name), std::move(recorder),
                       options),
      world_(std::move(world)),
      board_(board),
      ranks_(std::move(ranks)),
      crowded_(ranks_.size() > std::thread::hardware_concurrency()),
      chunks_sent_(ranks_.size(), 0),
      chunks_received_(ranks_.size(), 0) {}

BoardCommunicator::~BoardCommunicator() {
  close();
  board_.seat(rank()).state.store(Seat::left, std::memory_order_seq_cst);
  board_.wake();
  if (staging_) world_->give_back(staging_, 2 * kListBytes + kWindowBytes);
  board_.release();
}

Ref<Storage> BoardCommunicator::allocate(int64_t bytes) {
  WEFT_CHECK(bytes >= 0, "allocate", "expected at least 0 bytes, got ", bytes);
  const auto size = static_cast<size_t>(bytes);
  current_ledger().check_room(current_category(), bytes);
  std::byte* memory = world_->obtain(size);
  return Storage::adopt(memory, bytes,
                        [world = world_, memory, size] { world->give_back(memory, size); });
}

std::byte* BoardCommunicator::staging() {
  if (!staging_) staging_ = world_->obtain(2 * kListBytes + kWindowBytes);
  return staging_;
}

void BoardCommunicator::execute(const Call& call, int64_t sequence, Waiting waiting) {
  Present present{call, contract_of(call), sequence, waiting};
  Whereabouts& own = world_->whereabouts(ranks_[static_cast<size_t>(rank())]);
  own.enter(present.contract, sequence, name(), board_.number());
  if (board_.decided()) raise();
  if (call.collective == Collective::send || call.collective == Collective::recv) {
    exchange_pair(present);
  } else {
    Exchange(*this, present).run();
  }
  own.leave();
}

void BoardCommunicator::compare(const Present& present, size_t slot) {
  std::vector<const Contract*> contracts;
  for (int r = 0; r < size(); ++r)
    contracts.push_back(&board_.seat(r).slots[slot].contract);
  const std::string text =
      mismatch_text(op_name(present.call), contracts, ranks_, present.sequence, name());
  if (!text.empty()) fail(text, true);
}

uint64_t BoardCommunicator::prepare_group(const std::vector<int>& members) {
  return world_->make_board(static_cast<int>(members.size()));
}

std::unique_ptr<Communicator> BoardCommunicator::join_group(const std::vector<int>& members,
                                                            int index, const std::string& name,
                                                            uint64_t prepared) {
  std::vector<int> ranks;
  for (const int member : members)
    ranks.push_back(ranks_[static_cast<size_t>(member)]);
  Board& board = world_->board_of(ranks[0], prepared);
  return std::make_unique<BoardCommunicator>(world_, board, index, std::move(ranks), name,
                                             shared_recorder(), options());
}

}  // namespace weft::dist::detail
