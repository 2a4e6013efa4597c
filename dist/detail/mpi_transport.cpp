#include "dist/detail/mpi_transport.h"

#ifdef WEFT_WITH_MPI

#include "dist/recorder.h"

#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace weft::dist::detail {
namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw TransportError(concat({"[mpi] expected ", call, " to succeed, got: ", text}));
}

// MPI lives as long as the process, whoever initialises it.
void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Finalize();
}

void initialize() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized) {
    MPI_Query_thread(&provided);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    std::atexit(finalize_at_exit);
  }
  WEFT_CHECK(provided >= MPI_THREAD_SERIALIZED, "join_mpi",
             "expected an MPI that several threads may call (MPI_THREAD_SERIALIZED), got level ",
             provided);
}

class MpiTransport;

class MpiTransfer final : public Transport::Transfer {
 public:
  explicit MpiTransfer(MpiTransport& owner) : owner_(owner) {}
  ~MpiTransfer() override;

  MPI_Request request = MPI_REQUEST_NULL;
  std::string error;

 private:
  MpiTransport& owner_;
};

// One thread at a time is inside MPI. Nothing moves while no thread is, so who waits looks again
// and again, and makes way for others between two looks.
class MpiTransport final : public MpiTransportBase {
 public:
  MpiTransport(int rank, int size) {
    int own_rank = 0;
    int own_size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &own_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &own_size);
    WEFT_CHECK(own_rank == rank && own_size == size, "join_mpi", "expected rank ", rank, " of ",
               size, " as its launcher says, got rank ", own_rank, " of ", own_size, " from MPI");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host),
          "MPI_Comm_split_type");
    MPI_Comm_size(host, &own_size);
    alone_on_host_ = own_size == size;
    MPI_Comm_free(&host);
    void* limit = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, &limit, &found);
    highest_tag_ = found ? static_cast<uint64_t>(*static_cast<int*>(limit)) : 32767;
  }

  const char* backend() const override { return "mpi"; }
  bool alone_on_host() const override { return alone_on_host_; }

  std::string broadcast(const std::string& text) override {
    int size = static_cast<int>(text.size());
    check(MPI_Bcast(&size, 1, MPI_INT, 0, comm_), "MPI_Bcast");
    std::string all = text;
    all.resize(static_cast<size_t>(size));
    check(MPI_Bcast(all.data(), size, MPI_BYTE, 0, comm_), "MPI_Bcast");
    return all;
  }

  std::unique_ptr<Transfer> send(int to, uint64_t tag, const std::byte* data,
                                 size_t bytes) override {
    return begin(tag, bytes, "MPI_Isend", [&](int count, MPI_Request* request) {
      return MPI_Isend(data, count, MPI_BYTE, to, static_cast<int>(tag), comm_, request);
    });
  }
  std::unique_ptr<Transfer> recv(int from, uint64_t tag, std::byte* data, size_t most) override {
    return begin(tag, most, "MPI_Irecv", [&](int count, MPI_Request* request) {
      return MPI_Irecv(data, count, MPI_BYTE, from, static_cast<int>(tag), comm_, request);
    });
  }

  bool wait(Transfer& transfer) override {
    auto& own = static_cast<MpiTransfer&>(transfer);
    if (!own.error.empty()) throw TransportError(own.error);
    const uint64_t nudges = nudges_.load(std::memory_order_relaxed);
    const double start = clock_seconds();
    for (int i = 1;; ++i) {
      int done = 0;
      {
        const std::lock_guard lock(mutex_);
        check(MPI_Test(&own.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      }
      if (done) return true;
      if (nudges_.load(std::memory_order_relaxed) != nudges) return false;
      if (i < 50) continue;
      sched_yield();
      // Long waits leave the processor to computations.
      if (i % 64 == 0 && clock_seconds() - start > 2e-3)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  void nudge() override { nudges_.fetch_add(1, std::memory_order_relaxed); }

  void give_up(MPI_Request& request) {
    const std::lock_guard lock(mutex_);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized || request == MPI_REQUEST_NULL) return;
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    // A receive that nothing has matched is taken back. A message in the midst of its way runs to
    // its end as far as others still send it.
    MPI_Cancel(&request);
    for (int i = 0; i < 1000 && !done; ++i)
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) MPI_Request_free(&request);
  }

 private:
  template <class Begin>
  std::unique_ptr<Transfer> begin(uint64_t tag, size_t bytes, const char* call,
                                  const Begin& begin_call) {
    auto transfer = std::make_unique<MpiTransfer>(*this);
    WEFT_CHECK(tag <= highest_tag_, "mpi", "expected at most ",
               static_cast<int64_t>(highest_tag_ / 8), " communicators in a job, got more");
    const std::lock_guard lock(mutex_);
    const int code = begin_call(static_cast<int>(bytes), &transfer->request);
    if (code != MPI_SUCCESS) transfer->error = concat({"[mpi] ", call, " has failed"});
    return transfer;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;  // kept until MPI ends: freeing it is a call of all ranks
  bool alone_on_host_ = false;
  uint64_t highest_tag_ = 0;
  std::mutex mutex_;
  std::atomic<uint64_t> nudges_{0};
};

MpiTransfer::~MpiTransfer() {
  owner_.give_up(request);
}

}  // namespace

std::unique_ptr<MpiTransportBase> make_mpi_transport(int rank, int size) {
  initialize();
  return std::make_unique<MpiTransport>(rank, size);
}

}  // namespace weft::dist::detail

#endif
