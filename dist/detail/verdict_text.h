// The words of verdicts, which do not depend on the backend.
#pragma once

#include "dist/detail/contract.h"
#include "dist/detail/whereabouts.h"

#include <span>
#include <string>
#include <vector>

namespace weft::dist::detail {

// "2.5 s"
std::string seconds_text(double seconds);
// "rank 1", of a group "rank 1 (of the job: 3)"
std::string name_of_rank(int rank, int of_the_job);

// What is known of a rank that others wait for.
struct Absence {
  std::string who;
  std::string fate;  // "" while it is alive and has not left
  double waited = 0;
  Whereabouts::Snapshot seen;
  double ago = -1;      // seconds since what was seen; -1 if not known
  bool same = false;    // it was seen in the very call that waits for it
  bool silent = false;  // alive, but does not answer
};
std::string story_of(const Absence& absence);

// "[all_reduce] expected all 4 ranks in all_reduce #3 of 'world', …, got no rank 2: it has left"
std::string missing_text(const std::string& op, int ranks, const std::string& call,
                         std::span<const std::string> stories);
std::string gave_up_text(const std::string& communicator, int ranks, const std::string& who,
                         const Whereabouts::Snapshot& seen, const std::string& reason);

// "" if all contracts agree; else the text that names the first two that do not. `contracts` are
// those of a communicator's ranks, `ranks` their numbers in the job.
std::string mismatch_text(const std::string& op, std::span<const Contract* const> contracts,
                          std::span<const int> ranks, int64_t sequence,
                          const std::string& communicator);
// The same for a send and a receive; `sender` and `receiver` are ranks of the communicator.
std::string pair_mismatch_text(const Contract& sent, int sender, const Contract& received,
                               int receiver, std::span<const int> ranks, int64_t sequence,
                               const std::string& communicator);

}  // namespace weft::dist::detail
