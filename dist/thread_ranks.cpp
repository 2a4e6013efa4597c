#include "dist/thread_ranks.h"

#include "core/allocator.h"
#include "core/parallel.h"
#include "core/random.h"
#include "dist/detail/board_communicator.h"

#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace weft::dist {
namespace {

using detail::Board;
using detail::Whereabouts;

struct BoardDeleter {
  size_t bytes;
  void operator()(Board* board) const {
    ::operator delete (static_cast<void*>(board), std::align_val_t{64});
  }
};

// What all threads of a job share.
struct Job {
  explicit Job(int ranks) : whereabouts(static_cast<size_t>(ranks)) {}

  Board& make_board(int ranks) {
    const size_t bytes = Board::bytes(ranks);
    void* memory = ::operator new (bytes, std::align_val_t{64});
    std::memset(memory, 0, bytes);
    const std::lock_guard lock(mutex);
    std::erase_if(boards, [](const auto& board) { return !board->held(); });
    boards.emplace_back(Board::make(memory, ranks, ++numbers), BoardDeleter{bytes});
    return *boards.back();
  }

  std::vector<Whereabouts> whereabouts;
  std::mutex mutex;
  uint64_t numbers = 0;
  std::vector<std::unique_ptr<Board, BoardDeleter>> boards;
};

// Threads reach each other's memory as it is.
class ThreadWorld final : public detail::World {
 public:
  ThreadWorld(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}

  const char* backend() const override { return "thread"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(job_->whereabouts.size()); }
  Whereabouts& whereabouts(int rank) override {
    return job_->whereabouts[static_cast<size_t>(rank)];
  }
  std::string fate(int) override { return ""; }  // a thread that ends says so: see Seat::left
  uint64_t address_of(const std::byte* data, int64_t) const override {
    return reinterpret_cast<uint64_t>(data);
  }
  std::byte* at(int, uint64_t address) const override {
    return reinterpret_cast<std::byte*>(address);
  }
  std::byte* obtain(size_t bytes) override {
    void* memory = allocate_cached(static_cast<int64_t>(bytes));
    std::memset(memory, 0, bytes);
    return static_cast<std::byte*>(memory);
  }
  void give_back(std::byte* memory, size_t bytes) override {
    free_cached(memory, static_cast<int64_t>(bytes));
  }
  uint64_t make_board(int size) override {
    return reinterpret_cast<uint64_t>(&job_->make_board(size));
  }
  Board& board_of(int, uint64_t made) override { return *reinterpret_cast<Board*>(made); }

 private:
  const std::shared_ptr<Job> job_;
  const int rank_;
};

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(Communicator& comm)>& body,
                      const ThreadRanksOptions& options) {
  WEFT_CHECK(ranks >= 1, "run_thread_ranks", "expected at least 1 rank, got ", ranks);
  const auto job = std::make_shared<Job>(ranks);
  Board& board = job->make_board(ranks);
  std::vector<int> everyone;
  for (int r = 0; r < ranks; ++r)
    everyone.push_back(r);

  std::mutex mutex;
  std::exception_ptr first;  // that is not a verdict about another rank, if there is one
  bool first_is_verdict = false;
  const auto keep = [&](bool is_verdict) {
    const std::lock_guard lock(mutex);
    if (first && (is_verdict || !first_is_verdict)) return;
    first = std::current_exception();
    first_is_verdict = is_verdict;
  };

  // Ledgers outlive every tensor of their rank, also one that the exception holds.
  std::vector<std::unique_ptr<Ledger>> ledgers;
  for (int r = 0; r < ranks; ++r)
    ledgers.push_back(std::make_unique<Ledger>(options.memory_limit));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const LedgerScope ledger(*ledgers[static_cast<size_t>(r)]);
      set_num_threads(options.threads_per_rank);
      manual_seed(options.seed);
      detail::BoardCommunicator comm(std::make_shared<ThreadWorld>(job, r), board, r, everyone,
                                     "world", std::make_shared<Recorder>(), options.communicator);
      try {
        body(comm);
        comm.wait_all();
      } catch (const CommunicationError& error) {
        keep(true);
        comm.abort(error.what());
      } catch (const std::exception& error) {
        keep(false);
        comm.abort(error.what());
      } catch (...) {
        keep(false);
        comm.abort("an exception of unknown type");
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  if (first) std::rethrow_exception(first);
}

std::unique_ptr<Communicator> make_single_rank(CommunicatorOptions options) {
  const auto job = std::make_shared<Job>(1);
  return std::make_unique<detail::BoardCommunicator>(
      std::make_shared<ThreadWorld>(job, 0), job->make_board(1), 0, std::vector<int>{0}, "world",
      std::make_shared<Recorder>(), options);
}

}  // namespace weft::dist
