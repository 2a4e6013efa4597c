#include "dist/detail/board.h"

#include "dist/recorder.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

namespace weft::dist::detail {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "a board works between processes");
static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is a word of 32 bits");

size_t Board::bytes(int size) {
  const auto ranks = static_cast<size_t>(size);
  return sizeof(Board) + ranks * sizeof(Seat) + ranks * ranks * sizeof(Channel);
}

Board* Board::make(void* memory, int size, uint64_t number) {
  // Everything starts as zeros, which the memory holds already; nothing is touched that is not
  // used.
  auto* board = static_cast<Board*>(memory);
  board->size_ = size;
  board->number_ = number;
  board->holders_.store(size, std::memory_order_release);
  return board;
}

bool Board::all_at(uint64_t phase) {
  for (int r = 0; r < size_; ++r) {
    if (seat(r).arrived.load(std::memory_order_seq_cst) < phase) return false;
  }
  return true;
}

void Board::decide(const std::string& verdict, bool contract_error) {
  uint32_t undecided = 0;
  if (decided_.compare_exchange_strong(undecided, 1, std::memory_order_seq_cst)) {
    const size_t length = std::min(verdict.size(), kVerdict - 1);
    std::memcpy(verdict_.data(), verdict.data(), length);
    verdict_[length] = 0;
    contract_error_ = contract_error;
    decided_.store(2, std::memory_order_seq_cst);
  }
  signal();
}

std::string Board::verdict(bool& contract_error) const {
  const double start = clock_seconds();
  while (decided_.load(std::memory_order_acquire) != 2) {
    if (clock_seconds() - start > 1) {
      contract_error = false;
      return "[communicator] expected a verdict, got a rank that died while writing it";
    }
    std::this_thread::yield();
  }
  contract_error = contract_error_ != 0;
  return verdict_.data();
}

void Board::wait_for_signal(uint32_t seen) {
  const timespec most{0, 20'000'000};
  syscall(SYS_futex, &signal_, FUTEX_WAIT, seen, &most, nullptr, 0);
}

void Board::signal() {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &signal_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft::dist::detail
