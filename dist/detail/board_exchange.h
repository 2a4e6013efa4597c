// One collective on a board: what this rank offers, and its share of moving and adding.
#pragma once

#include "dist/detail/board_communicator.h"

#include <vector>

namespace weft::dist::detail {

// Small contributions travel in the slots: one arrival, and every rank takes what it needs.
// Otherwise ranks reach into each other's memory: arrive, work, arrive. Memory that others cannot
// reach passes in chunks through the window of this rank's staging memory.
//
// A buffer is one piece of `count` elements, or one for each rank (reduce_scatter, scatter,
// all_to_all); a round moves elements begin .. end - 1 of every piece.
class BoardCommunicator::Exchange {
 public:
  Exchange(BoardCommunicator& communicator, Present& present);
  void run();

 private:
  struct Round {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t chunk = 0;  // elements of a piece in a window
    bool in_slots = false;
    int64_t size() const { return end - begin; }
  };

  void post();
  void take_offers();
  Round whole() const { return {0, count_, 0, in_slots_}; }
  int64_t chunk() const;
  void copy_in(const Round& round);
  void copy_out(const Round& round);

  // Where element round.begin of a piece of rank r's part, or of its result, can be reached.
  std::byte* part_at(int r, int part, int piece, const Round& round) const;
  std::byte* result_at(int r, int result, const Round& round) const;
  std::byte* window_at(int r, int64_t buffer, const Round& round) const;

  void work(const Round& round);
  void fold_for_all(const Round& round);
  void fold_own_piece(const Round& round);
  std::vector<Part> inputs(int piece, const Round& round) const;
  void copy(std::byte* to, const std::byte* from, int64_t elements) const;
  [[noreturn]] void refuse(const std::string& what);

  int size() const { return c_.size(); }
  int rank() const { return c_.rank(); }
  bool nodes() const { return call_.leaves > 0; }
  const Slot& slot(int r) const { return c_.board_.seat(r).slots[slot_]; }

  BoardCommunicator& c_;
  Present& present_;
  const Call& call_;
  const size_t slot_;
  int pieces_ = 1;
  int64_t count_ = 0;  // of a piece
  DType dtype_ = f32;
  DType result_dtype_ = f32;
  std::vector<Part> parts_;           // this rank's
  std::vector<const Offer*> offers_;  // each rank's
  bool in_slots_ = true;
  bool staged_ = false;
};

}  // namespace weft::dist::detail
