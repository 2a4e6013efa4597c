// What ranks do while one of them fails, whatever carries their data, and what the others must say.
#pragma once

#include "dist/communicator.h"
#include "tests/support/processes.h"

#include <functional>
#include <string>
#include <vector>

namespace weft::test {

// What a rank does when its turn to fail comes.
using RankFault = std::function<void()>;

inline constexpr int kFaultRanks = 4;
inline constexpr int kFaultPoints = 18;

// Two steps as training makes them, by kFaultRanks ranks: small and large collectives, started
// ones, two groups (of ranks 0 and 1, 2 and 3), memory of both kinds. `fault` strikes before
// collective number `point`, of kFaultPoints; never for -1.
void work_until_fault(dist::Communicator& comm, int point, const RankFault& fault);

// The ranks but the victim have all got a verdict that names it and says `what`; those that are in
// no group of its have the same one. Nothing of theirs is left behind.
void expect_verdicts(const std::vector<Outcome>& outcomes, int victim, const std::string& what);

}  // namespace weft::test
