#include "dist/detail/run_board.h"

#include "core/error.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace weft::dist::detail {
namespace {

struct alignas(64) RankBeats {
  std::atomic<uint64_t> beats;
  std::atomic<int64_t> step;
  std::atomic<int32_t> phase;
  std::atomic<int32_t> done;
  std::atomic<int64_t> resident;
  std::array<std::atomic<double>, kPhases> seconds;
};
static_assert(std::atomic<double>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kMark = 0x7765667472756e31;

}  // namespace

struct RunBoard::Memory {
  uint64_t mark;
  int64_t ranks;
  std::atomic<int32_t> stop_reason;
  std::atomic<int32_t> lost;
  std::atomic<int32_t> begun;
  std::atomic<int32_t> last_attempt;
  std::atomic<int64_t> stop_step;  // 0: not settled
  RankBeats slots[1];              // as many as there are ranks
};

RunBoard::RunBoard(int ranks) {
  WEFT_CHECK(ranks >= 1, "trainer", "expected at least one rank, got ", ranks);
  const int fd = memfd_create("weft-run", 0);
  WEFT_CHECK(fd >= 0, "trainer", "expected shared memory, got ", std::strerror(errno));
  // Numbers 0 to 2 are the ranks' own.
  descriptor_ = FileDescriptor(fd > 2 ? fd : fcntl(fd, F_DUPFD, 3));
  if (fd <= 2) close(fd);
  const auto bytes =
      static_cast<int64_t>(sizeof(Memory)) + (ranks - 1) * static_cast<int64_t>(sizeof(RankBeats));
  WEFT_CHECK(ftruncate(descriptor_.get(), bytes) == 0, "trainer", "expected ", bytes,
             " bytes of shared memory, got ", std::strerror(errno));
  map(bytes);
  memory_->mark = kMark;
  memory_->ranks = ranks;
  for (int r = 0; r < ranks; ++r)
    memory_->slots[r].step.store(-1, std::memory_order_relaxed);
}

RunBoard RunBoard::adopt(int descriptor) {
  RunBoard board;
  struct stat status {};
  WEFT_CHECK(
      fstat(descriptor, &status) == 0 && status.st_size >= static_cast<int64_t>(sizeof(Memory)),
      "trainer", "expected the supervisor's memory as descriptor ", descriptor, ", got none");
  board.descriptor_ = FileDescriptor(descriptor);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // not for what this rank starts
  board.map(status.st_size);
  WEFT_CHECK(board.memory_->mark == kMark, "trainer",
             "expected the supervisor's memory as descriptor ", descriptor, ", got another");
  return board;
}

void RunBoard::map(int64_t bytes) {
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                  descriptor_.get(), 0);
  WEFT_CHECK(at != MAP_FAILED, "trainer", "expected to map ", bytes,
             " bytes of shared memory, got ", std::strerror(errno));
  memory_ = static_cast<Memory*>(at);
  bytes_ = bytes;
}

RunBoard::RunBoard(RunBoard&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

RunBoard::~RunBoard() {
  if (memory_) munmap(memory_, static_cast<size_t>(bytes_));
}

int RunBoard::ranks() const {
  return static_cast<int>(memory_->ranks);
}

void RunBoard::beat(int rank, Phase phase) {
  RankBeats& slot = memory_->slots[rank];
  slot.phase.store(static_cast<int32_t>(phase), std::memory_order_relaxed);
  slot.beats.fetch_add(1, std::memory_order_release);
}

void RunBoard::completed(int rank, int64_t step, const std::array<double, kPhases>& seconds,
                         int64_t resident) {
  RankBeats& slot = memory_->slots[rank];
  for (size_t i = 0; i < kPhases; ++i)
    slot.seconds[i].store(seconds[i], std::memory_order_relaxed);
  if (resident > 0) slot.resident.store(resident, std::memory_order_relaxed);
  slot.step.store(step, std::memory_order_release);
  slot.beats.fetch_add(1, std::memory_order_release);
}

void RunBoard::done(int rank) {
  memory_->slots[rank].done.store(1, std::memory_order_release);
}

RankSample RunBoard::sample(int rank) const {
  const RankBeats& slot = memory_->slots[rank];
  RankSample sample;
  sample.beats = slot.beats.load(std::memory_order_acquire);
  sample.step = slot.step.load(std::memory_order_acquire);
  sample.phase = static_cast<Phase>(slot.phase.load(std::memory_order_relaxed));
  for (size_t i = 0; i < kPhases; ++i)
    sample.seconds[i] = slot.seconds[i].load(std::memory_order_relaxed);
  sample.resident = slot.resident.load(std::memory_order_relaxed);
  sample.done = slot.done.load(std::memory_order_acquire) != 0;
  return sample;
}

void RunBoard::request_stop(StopReason reason) {
  int32_t none = 0;
  memory_->stop_reason.compare_exchange_strong(none, static_cast<int32_t>(reason));
}

StopReason RunBoard::stop_requested() const {
  return static_cast<StopReason>(memory_->stop_reason.load());
}

bool RunBoard::stops_after(int64_t step) {
  if (stop_requested() == StopReason::none) return false;
  int64_t settled = 0;
  if (memory_->stop_step.compare_exchange_strong(settled, step + 1)) return false;
  return step >= settled;
}

void RunBoard::begin() {
  memory_->begun.store(1);
}

bool RunBoard::begun() const {
  return memory_->begun.load() != 0;
}

void RunBoard::forbid_restart() {
  memory_->last_attempt.store(1);
}

bool RunBoard::restart_forbidden() const {
  return memory_->last_attempt.load() != 0;
}

void RunBoard::lose_place() {
  memory_->lost.fetch_add(1);
}

int RunBoard::places_lost() const {
  return memory_->lost.load();
}

int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (!file) return 0;
  long long all = 0;
  long long resident = 0;
  const int read = std::fscanf(file, "%lld %lld", &all, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace weft::dist::detail
