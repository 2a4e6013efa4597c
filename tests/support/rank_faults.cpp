#include "tests/support/rank_faults.h"

#include <gmock/gmock.h>

namespace weft::test {

using dist::Elements;
using dist::ReduceOp;

void work_until_fault(dist::Communicator& comm, int point, const RankFault& fault) {
  int at = 0;
  const auto here = [&] {
    if (at++ == point) fault();
  };
  const auto group = comm.split(comm.rank() / 2, 0, "half");
  // Stays mapped while an exception unwinds and a started call still sends it.
  const Ref<Storage> memory = comm.allocate(4 * 300'000);
  std::vector<float> ordinary(300'000);
  const Elements large{memory->data(), 300'000, f32};
  const Elements staged{ordinary.data(), 300'000, f32};
  for (int step = 0; step < 2; ++step) {
    here();
    comm.all_reduce(large.part(0, 1), ReduceOp::sum, {.unit = "loss"});
    here();
    comm.all_reduce(large, ReduceOp::sum, {.unit = "blocks.0", .begin = 0, .end = 300'000});
    here();
    comm.reduce_scatter(large, large.part(comm.rank() * 75'000, 75'000));
    here();
    comm.all_reduce(staged);
    here();
    group->all_reduce(large.part(0, 50'000));
    here();
    dist::Handle handle = comm.start_all_reduce(large);
    here();
    handle.wait();
    here();
    comm.broadcast(large, 1);
    here();
    comm.barrier();
  }
}

void expect_verdicts(const std::vector<Outcome>& outcomes, int victim, const std::string& what) {
  std::string of_the_other_half;
  for (int r = 0; r < kFaultRanks; ++r) {
    if (r == victim) continue;
    const auto& outcome = outcomes[static_cast<size_t>(r)];
    EXPECT_EQ(outcome.code, kVerdict) << "rank " << r << ": " << outcome.text;
    EXPECT_THAT(outcome.text, testing::ContainsRegex(concat(
                                  {"no rank (", victim, "|[01] \\(of the job: ", victim, "\\))"})))
        << r;
    EXPECT_THAT(outcome.text, testing::HasSubstr(what)) << r;
    if (r / 2 == victim / 2) continue;
    if (of_the_other_half.empty()) of_the_other_half = outcome.text;
    EXPECT_EQ(outcome.text, of_the_other_half);
  }
  EXPECT_THAT(leftovers(), testing::IsEmpty());
}

}  // namespace weft::test
