// --profile of apps: a table in the run's folder, and the same training.
#include "tests/apps/app_runs.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::Not;

class Profile : public test::AppRuns {};

TEST_F(Profile, TellsOperatorsAndLayersAndChangesNothing) {
  const std::string usual = "--epochs 1 ";
  ASSERT_EQ(start("plain", usual).code, 0);
  ASSERT_EQ(start("ddp", usual + "--workers 2 --profile").code, 0);
  const std::string table = test::read_file(path("ddp/profile.txt"));
  for (const char* part : {"linear backward", "cross_entropy", "sgd", "all operators", "fc1", "fc2",
                           "2 steps of ", "GFLOP/s"})
    EXPECT_THAT(table, HasSubstr(part));
  EXPECT_THAT(table, Not(HasSubstr("conv")));
  EXPECT_EQ(test::read_file(path("plain/profile.txt")), "");
  EXPECT_EQ(test::read_file(path("ddp.export")), test::read_file(path("plain.export")));
}

// The first step does not count.
TEST_F(Profile, SaysSoWhereThereIsNothingToTell) {
  ASSERT_EQ(start("run", "--steps 1 --profile").code, 0);
  EXPECT_EQ(test::read_file(path("run/profile.txt")), "");
  EXPECT_THAT(test::read_file(path("run/logs/rank-0.log")), HasSubstr("no profile"));
}

}  // namespace
}  // namespace weft
