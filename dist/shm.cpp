#include "dist/shm.h"

#include "dist/detail/board_communicator.h"
#include "dist/detail/rendezvous.h"
#include "dist/detail/shared_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

namespace weft::dist {
namespace {

using namespace detail;

// What stands before the first board of a job.
struct alignas(64) Head {
  std::atomic<uint64_t> numbers;  // of boards
};

size_t board_file_bytes(int size) {
  return sizeof(Head) + static_cast<size_t>(size) * sizeof(Whereabouts) + Board::bytes(size);
}

size_t memory_of_host() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Processes reach each other's heaps; a rank's heap is a memory file that all have mapped.
//
// Each rank holds a lock on its own byte of the board's file. The kernel lets go of it when the
// process ends, however it ends, before its parent has asked about it, and never for a process that
// is stopped; no process number can be mistaken for another's.
class ShmWorld final : public World {
 public:
  ShmWorld(Joined& joined, int rank, int size, Mapping own)
      : rank_(rank),
        processes_(joined.processes),
        board_file_(std::move(joined.board)),
        board_(board_file_, board_file_bytes(size)),
        heap_(std::move(own)) {
    const size_t bytes = heap_bytes(memory_of_host(), size);
    for (int r = 0; r < size; ++r) {
      heaps_.push_back(r == rank ? Mapping()
                                 : Mapping(joined.heaps[static_cast<size_t>(r)], bytes));
      bases_.push_back(r == rank ? heap_.data() : heaps_.back().data());
    }
    struct flock lock = lock_on(rank);
    WEFT_CHECK(fcntl(board_file_.get(), F_SETLK, &lock) == 0, "join_shm",
               "expected to lock a byte of a memory file, got: ", std::strerror(errno));
  }

  const char* backend() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(processes_.size()); }
  Whereabouts& whereabouts(int rank) override {
    return reinterpret_cast<Whereabouts*>(board_.data() + sizeof(Head))[rank];
  }
  std::string fate(int rank) override {
    if (rank == rank_) return "";
    struct flock lock = lock_on(rank);
    if (fcntl(board_file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return "";
    return concat({"died (process ", processes_[static_cast<size_t>(rank)], ")"});
  }
  uint64_t address_of(const std::byte* data, int64_t) const override {
    if (!heap_.holds(data)) return Offer::kStaged;
    return static_cast<uint64_t>(data - heap_.data());
  }
  std::byte* at(int rank, uint64_t address) const override {
    return bases_[static_cast<size_t>(rank)] + address;
  }
  std::byte* obtain(size_t bytes) override { return heap_.take(bytes); }
  void give_back(std::byte* memory, size_t bytes) override { heap_.give_back(memory, bytes); }

  uint64_t make_board(int size) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(boards_, [&](const auto& made) {
      if (made.first->held()) return false;
      heap_.give_back(reinterpret_cast<std::byte*>(made.first), made.second);
      return true;
    });
    const size_t bytes = Board::bytes(size);
    const uint64_t number = head().numbers.fetch_add(1) + 2;
    Board* board = Board::make(heap_.take(bytes), size, number);
    boards_.emplace_back(board, bytes);
    return address_of(reinterpret_cast<std::byte*>(board), 0);
  }
  Board& board_of(int rank, uint64_t made) override {
    return *reinterpret_cast<Board*>(at(rank, made));
  }

  // The board that all ranks have from the start; rank 0 makes it.
  void* first_board_memory() { return first_board_memory_of(board_.data(), size()); }
  static void* first_board_memory_of(std::byte* file, int size) {
    return file + sizeof(Head) + static_cast<size_t>(size) * sizeof(Whereabouts);
  }

 private:
  Head& head() { return *reinterpret_cast<Head*>(board_.data()); }
  static struct flock lock_on(int rank) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  const int rank_;
  const std::vector<int> processes_;
  // The only one of its file in this process: closing any would give up the lock.
  const FileDescriptor board_file_;
  const Mapping board_;
  SharedHeap heap_;
  std::vector<Mapping> heaps_;  // others'
  std::vector<std::byte*> bases_;
  std::mutex mutex_;
  std::vector<std::pair<Board*, size_t>> boards_;
};

}  // namespace

std::unique_ptr<Communicator> join_shm(const std::string& job, int rank, int size,
                                       CommunicatorOptions options) {
  const bool named =
      !job.empty() && job.size() <= 64 && std::all_of(job.begin(), job.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-';
      });
  WEFT_CHECK(named, "join_shm", "expected a job name of 1 to 64 letters, digits and dashes, got '",
             job, "'");
  WEFT_CHECK(size >= 1 && rank >= 0 && rank < size, "join_shm", "expected a rank out of ", size,
             ", got ", rank);

  FileDescriptor board_file;
  if (rank == 0) {
    board_file = make_memory_file("weft-board", board_file_bytes(size));
    const Mapping mapping(board_file, board_file_bytes(size));
    Board::make(ShmWorld::first_board_memory_of(mapping.data(), size), size, 1);
  }
  const size_t bytes = heap_bytes(memory_of_host(), size);
  FileDescriptor heap_file = make_memory_file("weft-heap", bytes);
  Mapping heap(heap_file, bytes);

  std::shared_ptr<ShmWorld> world;
  Rendezvous rendezvous(job, rank, size, options.timeout_seconds);
  rendezvous.meet(std::move(board_file), std::move(heap_file), [&](Joined& joined) {
    world = std::make_shared<ShmWorld>(joined, rank, size, std::move(heap));
  });
  std::vector<int> everyone;
  for (int r = 0; r < size; ++r)
    everyone.push_back(r);
  auto& board = *static_cast<Board*>(world->first_board_memory());
  return std::make_unique<BoardCommunicator>(world, board, rank, std::move(everyone), "world",
                                             std::make_shared<Recorder>(), options);
}

}  // namespace weft::dist
