// `weft bench checkpoint`: how fast checkpoints are written and read, beside the bare system calls
// on the same files, and how long training stands still for one that is written in the background.
#include "apps/common/step_clock.h"
#include "apps/weft/bench.h"
#include "apps/weft/bench_ranks.h"
#include "core/parallel.h"
#include "core/random.h"
#include "dist/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace weft::app {
namespace {

constexpr int64_t kParameterBytes = int64_t{8} << 20;
constexpr int64_t kChunk = int64_t{8} << 20;

// Parameters of `bytes` in all, none of which is trained: they are only saved and loaded.
struct Ballast : nn::Module {
  explicit Ballast(int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += kParameterBytes) {
      const int64_t count = std::min(kParameterBytes, bytes - at) / 4;
      parameters_.push_back(std::make_unique<Tensor>(empty({count})));
      fill_normal({3, static_cast<uint64_t>(at)}, 0, parameters_.back()->data<float>(), count);
      add_parameter("p" + std::to_string(parameters_.size()), *parameters_.back());
      parameters_.back()->set_requires_grad(false);
    }
  }
  Tensor forward(const Tensor& x) override { return x; }

 private:
  std::vector<std::unique_ptr<Tensor>> parameters_;
};

void check(bool well, const std::string& path) {
  WEFT_CHECK(well, "bench", "expected to write and read ", path, ", got an error");
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class BenchCheckpoint final : public Bench {
 public:
  explicit BenchCheckpoint(CommandLine& bench)
      : Bench(bench, "checkpoint",
              "Saving and loading model state, sharded over ranks, beside bare writes and reads.") {
    line->add_bytes("--bytes", bytes_, "model state of all ranks together, by default 512MiB");
    line->add("--workers", workers_, "ranks", 1, 1024);
    line->add("--repeats", repeats_, "measurements of each case, of which the median counts", 1,
              1000);
    line->add("--directory", directory_, "where to write; by default a temporary directory here");
    line->add_switch("--cached", cached_,
                     "read what the system still has in memory, instead of from the disk");
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    if (bytes_ < 4 * workers_)
      return line->reject("--bytes: expected at least 4 a rank, got " + std::to_string(bytes_));
    std::string folder = (directory_.empty() ? "." : directory_) + "/weft-bench-XXXXXX";
    WEFT_CHECK(mkdtemp(folder.data()), "bench", "expected to make a directory in ",
               directory_.empty() ? "." : directory_, ", got none");
    std::vector<double> seconds;
    const auto clean = [&] { dist::remove_tree(*dist::local_storage(), folder); };
    try {
      seconds =
          measure_on_processes({.workers = static_cast<int>(workers_)}, kCases.size(),
                               [&](dist::Communicator& comm) { return measure(comm, folder); });
    } catch (...) {
      for (const auto& stored : dist::CheckpointDirectory(folder).list())
        dist::remove_tree(*dist::local_storage(), stored.path);
      dist::CheckpointDirectory(folder).clean();
      clean();
      throw;
    }
    clean();
    for (size_t i = 0; i < kCases.size(); ++i) {
      rows.push_back({.bench = "checkpoint",
                      .name = kCases[i],
                      .threads = threads,
                      .workers = workers_,
                      .median_seconds = seconds[i],
                      .rate = static_cast<double>(bytes_) * 1e-9 / seconds[i],
                      .unit = "GB/s"});
    }
    return std::nullopt;
  }

  void print(const std::vector<BenchRow>& rows) const override {
    Bench::print(rows);
    const auto seconds = [&](size_t i) {
      return rows[rows.size() - kCases.size() + i].median_seconds;
    };
    std::printf(
        "# save at %.0f %% of the bare write's speed, load at %.0f %% of the bare read's; an "
        "asynchronous save stalls %.1f %% of a save\n",
        100 * seconds(kRawWrite) / seconds(kSave), 100 * seconds(kRawRead) / seconds(kLoad),
        100 * seconds(kStall) / seconds(kSave));
  }

 private:
  enum Case : size_t { kSave, kStall, kLoad, kRawWrite, kRawRead };
  static constexpr std::array<const char*, 5> kCases = {"save", "save_async_stall", "load",
                                                        "raw_write", "raw_read"};

  // Cases take turns, so that a disk that is slow for a while is slow for all of them.
  std::vector<double> measure(dist::Communicator& comm, const std::string& folder) const {
    set_num_threads(static_cast<int>(threads));
    Ballast model(bytes_ / 4 * 4);
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    const auto storage = dist::local_storage();
    const auto checkpointer = [&](bool asynchronous) {
      return std::make_unique<dist::Checkpointer>(
          model, parallel,
          dist::CheckpointOptions{
              .directory = folder, .keep = {.last = 0}, .asynchronous = asynchronous});
    };
    const auto synchronous = checkpointer(false);
    const auto asynchronous = checkpointer(true);
    const std::string raw = concat({folder, "/raw-", comm.rank()});
    const Tensor memory = empty({bytes_ / comm.size()}, {.dtype = u8});
    std::memset(memory.raw(), 5, static_cast<size_t>(memory.bytes()));
    const auto timed = [&](const auto& body) {
      comm.barrier();
      const double start = seconds_now();
      body();
      comm.barrier();
      return seconds_now() - start;
    };
    const auto remove = [&](const std::string& path) {
      comm.barrier();
      if (comm.rank() == 0) dist::remove_tree(*storage, path);
      comm.barrier();
    };
    std::vector<std::vector<double>> times(kCases.size());
    for (int64_t round = -1; round < repeats_; ++round) {  // the first warms up and does not count
      std::array<double, kCases.size()> took{};
      took[kRawWrite] = timed([&] { raw_write(raw, memory); });
      took[kSave] = timed([&] { synchronous->save({.step = 1}); });
      const std::string saved = synchronous->saved()->path;
      // Both have been read once before, since what lies below this machine's disk may also have a
      // memory, which files get into by being read.
      for (const bool counts : {false, true}) {
        forget(raw);
        if (comm.rank() == 0) {
          for (const std::string& name : storage->list(saved))
            forget(saved + "/" + name);
        }
        comm.barrier();
        const double bare = timed([&] { raw_read(raw, memory); });
        const double load = timed([&] { synchronous->load(saved); });
        if (counts) {
          took[kRawRead] = bare;
          took[kLoad] = load;
        }
      }
      ::unlink(raw.c_str());
      remove(saved);
      comm.barrier();
      const double start = seconds_now();
      asynchronous->save({.step = 2});
      took[kStall] = seconds_now() - start;
      asynchronous->wait();
      remove(asynchronous->saved()->path);
      for (size_t i = 0; i < kCases.size() && round >= 0; ++i)
        times[i].push_back(took[i]);
    }
    std::vector<double> medians;
    for (const auto& each : times)
      medians.push_back(median(each));
    return medians;
  }

  // This rank's part of the bytes, by write() and fsync().
  static void raw_write(const std::string& path, const Tensor& memory) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    check(file >= 0, path);
    for (int64_t at = 0; at < memory.numel();) {
      const ssize_t written = ::write(file, memory.raw() + at,
                                      static_cast<size_t>(std::min(memory.numel() - at, kChunk)));
      check(written > 0, path);
      at += written;
    }
    check(::fsync(file) == 0, path);
    check(::close(file) == 0, path);
  }

  static void raw_read(const std::string& path, const Tensor& memory) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0, path);
    int64_t at = 0;
    while (at < memory.numel()) {
      const ssize_t got = ::read(file, memory.raw() + at,
                                 static_cast<size_t>(std::min(memory.numel() - at, kChunk)));
      check(got > 0, path);
      at += got;
    }
    check(::close(file) == 0, path);
  }

  // Lets the system drop what it has of a file in memory.
  void forget(const std::string& path) const {
    if (cached_) return;
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(file >= 0, path);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }

  int64_t bytes_ = int64_t{512} << 20;
  int64_t workers_ = 2;
  int64_t repeats_ = 5;
  std::string directory_;
  bool cached_ = false;
};

}  // namespace

std::unique_ptr<Bench> make_bench_checkpoint(CommandLine& bench) {
  return std::make_unique<BenchCheckpoint>(bench);
}

}  // namespace weft::app
