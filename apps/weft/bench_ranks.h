// Benchmarks whose ranks are processes of this host.
#pragma once

#include "dist/communicator.h"

#include <functional>
#include <string>
#include <vector>

namespace weft::app {

struct BenchRanks {
  int workers = 2;
  std::string backend = "shm";  // or "tcp" and "gloo", over loopback TCP
};

// Forks ranks, which meet and run `body`; returns the `results` numbers that rank 0's body
// returned. Throws Error if a rank fails, after it has said why on standard error. To be called
// while the process has no other threads.
std::vector<double> measure_on_processes(
    const BenchRanks& ranks, size_t results,
    const std::function<std::vector<double>(dist::Communicator&)>& body);

}  // namespace weft::app
