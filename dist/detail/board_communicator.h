// The communicator of ranks that meet on a board: threads of one process, or processes of one host.
// Which of the two makes no difference but in World: how memory is reached and death is noticed.
#pragma once

#include "dist/detail/base.h"
#include "dist/detail/board.h"
#include "dist/detail/world.h"

#include <span>
#include <string>
#include <vector>

namespace weft::dist::detail {

class BoardCommunicator final : public CommunicatorBase {
 public:
  // This rank of `board`; `ranks` are the job's ranks that the board's seats belong to. It is let
  // go of in the end by its last holder.
  BoardCommunicator(std::shared_ptr<World> world, Board& board, int rank, std::vector<int> ranks,
                    std::string name, std::shared_ptr<Recorder> recorder,
                    CommunicatorOptions options);
  ~BoardCommunicator() override;

  const char* backend() const override { return world_->backend(); }
  Ref<Storage> allocate(int64_t bytes) override;
  void abort(const std::string& reason) override;

 protected:
  void execute(const Call& call, int64_t sequence, Waiting waiting) override;
  uint64_t prepare_group(const std::vector<int>& members) override;
  std::unique_ptr<Communicator> join_group(const std::vector<int>& members, int index,
                                           const std::string& name, uint64_t prepared) override;

 private:
  struct Present;  // the call being executed: board_wait.h
  class Exchange;  // of the data of a collective: board_exchange.cpp

  // ---- meeting: board_wait.cpp ----
  void arrive();
  void await_all(Present& present);
  // Waits until `ready`; `missing(r)` says whether rank r is what it waits for.
  template <class Ready, class Missing>
  void await(Present& present, const Ready& ready, const Missing& missing);
  // Fails if a missing rank is gone or the time is up.
  void report_missing(const Present& present, const std::vector<int>& missing, double waited);
  std::string story(int rank, const Present& present, const std::string& fate, double waited);
  [[noreturn]] void fail(const std::string& verdict, bool contract_error);
  [[noreturn]] void raise();
  void begin_touching();
  void end_touching();
  std::string name_of(int rank) const;

  // ---- data ----
  // ContractError if the ranks' slots hold different contracts.
  void compare(const Present& present, size_t slot);
  void exchange_pair(Present& present);
  // Memory of this rank that all reach: two lists of offers, then a window for data of others'.
  static constexpr size_t kListBytes = size_t{128} << 10;
  static constexpr size_t kWindowBytes = size_t{1} << 20;
  std::byte* staging();

  const std::shared_ptr<World> world_;
  Board& board_;
  const std::vector<int> ranks_;
  const bool crowded_;  // more ranks than processors: a waiting one makes way at once
  uint64_t phase_ = 0;
  uint64_t calls_ = 0;
  std::byte* staging_ = nullptr;
  std::vector<uint64_t> chunks_sent_, chunks_received_;
};

}  // namespace weft::dist::detail
