// `weft bench comm`: collectives, as nccl-tests measures them.
#include "apps/weft/bench.h"
#include "apps/weft/bench_ranks.h"
#include "core/parallel.h"
#include "dist/environment.h"
#include "dist/recorder.h"
#include "dist/thread_ranks.h"
#include "dist/world.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace weft::app {
namespace {

using dist::Communicator;
using dist::Elements;

// Bytes that pass a rank's link for each byte of the stated size, by an algorithm without waste:
// https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
double bus_factor(const std::string& op, double ranks) {
  if (op == "all_reduce") return 2 * (ranks - 1) / ranks;
  if (op == "broadcast" || op == "reduce") return 1;
  return (ranks - 1) / ranks;
}

// Whether the stated size is that of all pieces together.
bool in_pieces(const std::string& op) {
  return op != "all_reduce" && op != "broadcast" && op != "reduce";
}

class BenchComm final : public Bench {
 public:
  explicit BenchComm(CommandLine& bench)
      : Bench(bench, "comm",
              "Collectives on f32, between ranks that it starts here or those that a launcher has "
              "started.") {
    line->add_choice("--op", op_,
                     {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather",
                      "scatter", "all_to_all"},
                     "collective");
    line->add_choice("--backend", backend_, {"thread", "shm", "tcp", "gloo", "mpi"},
                     "communicator; mpi under mpirun only");
    line->add("--workers", workers_, "ranks", 1, 1024);
    line->add("--bytes", bytes_, "sizes in bytes, A,B,C");
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    const dist::RankEnvironment environment = dist::read_environment();
    if (environment.launched()) {
      if (line->given("--workers") && workers_ != environment.size) {
        return line->reject("--workers: expected the " + std::to_string(environment.size) +
                            " ranks that " + environment.launcher + " has started, got " +
                            std::to_string(workers_));
      }
      workers_ = environment.size;
    } else if (backend_ == "mpi") {
      return line->reject("--backend: expected ranks that mpirun has started for mpi, got none");
    }
    std::vector<int64_t> sizes;
    const char* at = bytes_.data();
    const char* const end = at + bytes_.size();
    for (;;) {
      int64_t size = 0;
      const auto [next, error] = std::from_chars(at, end, size);
      const int64_t step = 4 * (in_pieces(op_) ? workers_ : 1);
      if (error != std::errc() || size < 0 || size % step != 0 || (next != end && *next != ',')) {
        return line->reject("--bytes: expected sizes that are multiples of " +
                            std::to_string(step) + ", got " + bytes_);
      }
      sizes.push_back(size);
      if (next == end) break;
      at = next + 1;
    }
    std::vector<double> seconds;
    if (environment.launched()) {
      const auto comm = dist::join_world(environment, {.backend = backend_});
      seconds = measure(*comm, sizes);
      if (comm->rank() != 0) return 0;
    } else if (backend_ == "thread") {
      seconds = by_threads(sizes);
    } else {
      seconds = measure_on_processes({.workers = static_cast<int>(workers_), .backend = backend_},
                                     sizes.size(),
                                     [&](Communicator& comm) { return measure(comm, sizes); });
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double algorithm = static_cast<double>(sizes[i]) * 1e-9 / seconds[i];
      rows.push_back({.bench = "comm",
                      .name = op_ + "_" + std::to_string(sizes[i]),
                      .threads = threads,
                      .workers = workers_,
                      .median_seconds = seconds[i],
                      .rate = algorithm * bus_factor(op_, static_cast<double>(workers_)),
                      .unit = "GB/s bus"});
    }
    return std::nullopt;
  }

  void print(const std::vector<BenchRow>& rows) const override {
    std::printf("# %s on %s, %lld ranks, f32\n%14s %14s %14s %14s\n", op_.c_str(), backend_.c_str(),
                static_cast<long long>(workers_), "size (B)", "time (us)", "algbw (GB/s)",
                "busbw (GB/s)");
    for (const BenchRow& row : rows) {
      const std::string size = row.name.substr(op_.size() + 1);
      std::printf("%14s %14.2f %14.2f %14.2f\n", size.c_str(), row.median_seconds * 1e6,
                  static_cast<double>(std::stoll(size)) * 1e-9 / row.median_seconds, row.rate);
    }
  }

 private:
  // Median seconds of each size, as this rank sees it.
  std::vector<double> measure(Communicator& comm, const std::vector<int64_t>& sizes) const {
    std::vector<double> medians;
    for (const int64_t size : sizes) {
      const int64_t count = size / 4;
      const int64_t each = count / comm.size();
      const Ref<Storage> memory = comm.allocate(size);
      const Ref<Storage> second = comm.allocate(op_ == "all_to_all" ? size : 0);
      const Elements all{memory->data(), count, f32};
      const Elements own =
          all.part(in_pieces(op_) ? each * comm.rank() : 0, in_pieces(op_) ? each : 0);
      const auto call = [&] {
        if (op_ == "all_reduce") comm.all_reduce(all);
        if (op_ == "reduce_scatter") comm.reduce_scatter(all, own);
        if (op_ == "all_gather") comm.all_gather(own, all);
        if (op_ == "broadcast") comm.broadcast(all, 0);
        if (op_ == "reduce") comm.reduce(all, 0);
        if (op_ == "gather") comm.gather(own, all, 0);
        if (op_ == "scatter") comm.scatter(all, own, 0);
        if (op_ == "all_to_all") comm.all_to_all(all, {second->data(), count, f32});
      };
      const int repeats = size <= 4096 ? 2000 : size <= 65'536 ? 500 : size <= (8 << 20) ? 60 : 15;
      std::vector<double> times;
      for (int i = -std::max(3, repeats / 10); i < repeats; ++i) {
        comm.barrier();
        const double start = dist::clock_seconds();
        call();
        if (i >= 0) times.push_back(dist::clock_seconds() - start);
      }
      std::sort(times.begin(), times.end());
      medians.push_back(times[times.size() / 2]);
    }
    return medians;
  }

  std::vector<double> by_threads(const std::vector<int64_t>& sizes) const {
    std::vector<double> medians;
    dist::run_thread_ranks(static_cast<int>(workers_),
                           [&](Communicator& comm) {
                             auto own = measure(comm, sizes);
                             if (comm.rank() == 0) medians = std::move(own);
                           },
                           {.threads_per_rank = static_cast<int>(threads)});
    return medians;
  }

  std::string op_ = "all_reduce";
  std::string backend_ = "shm";
  int64_t workers_ = 2;
  std::string bytes_ = "1024,4096,65536,4194304,33554432,100000000";
};

}  // namespace

std::unique_ptr<Bench> make_bench_comm(CommandLine& bench) {
  return std::make_unique<BenchComm>(bench);
}

}  // namespace weft::app
