// Ranks as threads of one process: for tests, teaching and race detection.
#pragma once

#include "core/ledger.h"
#include "dist/communicator.h"

#include <functional>
#include <memory>

namespace weft::dist {

struct ThreadRanksOptions {
  int threads_per_rank = 1;
  uint64_t seed = 1;         // manual_seed of every rank
  int64_t memory_limit = 0;  // bytes a rank, 0: none
  CommunicatorOptions communicator = {};
};

// Runs body(comm) on `ranks` threads that share a `thread` communicator, each with a ledger, a
// random state and a thread count of its own; returns when all have ended. If ranks throw, all
// others are made to fail too, and the exception that came first is thrown again here.
void run_thread_ranks(int ranks, const std::function<void(Communicator& comm)>& body,
                      const ThreadRanksOptions& options = {});

// A `thread` communicator of one rank: this thread, with the ledger, random state and thread count
// it has.
std::unique_ptr<Communicator> make_single_rank(CommunicatorOptions options = {});

}  // namespace weft::dist
