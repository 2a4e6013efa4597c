// Which backend serves which ranks. That they then reach each other is shown in
// tests/apps/run_test.cpp.
#include "dist/world.h"

#include "ops/ops.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace weft::dist {
namespace {

RankEnvironment ranks(int size, int local_size) {
  RankEnvironment is;
  is.launcher = "weft";
  is.job = "world-test";
  is.size = size;
  is.local_size = local_size;
  return is;
}

std::string choice(const RankEnvironment& environment, const std::string& wanted) {
  try {
    return choose_backend(environment, wanted);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(World, BackendFollowsFromWhereTheRanksAre) {
  unsetenv("WEFT_BACKEND");
  EXPECT_EQ(choice(RankEnvironment(), "auto"), "thread");
  EXPECT_EQ(choice(ranks(4, 4), "auto"), "shm");
  EXPECT_EQ(choice(ranks(4, 2), "auto"), "tcp");
  EXPECT_EQ(choice(ranks(4, 4), "tcp"), "tcp");
  EXPECT_EQ(choice(ranks(4, 4), "gloo"), "gloo");
  EXPECT_EQ(choice(ranks(1, 1), "shm"), "shm");
  setenv("WEFT_BACKEND", "shm", 1);
  EXPECT_EQ(choice(RankEnvironment(), "auto"), "shm");
  EXPECT_EQ(choice(RankEnvironment(), "thread"), "thread");
  unsetenv("WEFT_BACKEND");
}

TEST(World, BackendsThatCannotServeAreErrors) {
  unsetenv("WEFT_BACKEND");
  using testing::HasSubstr;
  EXPECT_THAT(choice(ranks(4, 4), "mpi"), HasSubstr("for the backend mpi, got "));
  EXPECT_THAT(choice(ranks(4, 2), "shm"), HasSubstr("all ranks on one host"));
  EXPECT_THAT(choice(ranks(4, 4), "thread"), HasSubstr("expected one rank for the backend thread"));
  EXPECT_THAT(choice(ranks(4, 4), "pigeon"), HasSubstr("got pigeon"));
}

TEST(World, OneRankIsAWorld) {
  EXPECT_EQ(join_world(RankEnvironment(), {.backend = "tcp"})->size(), 1);
  EXPECT_EQ(join_world(RankEnvironment(), {.backend = "gloo"})->size(), 1);
  const auto comm = join_world(RankEnvironment());
  EXPECT_EQ(comm->size(), 1);
  EXPECT_EQ(comm->rank(), 0);
  const Tensor values = full({3}, 2.0);
  comm->all_reduce(values);
  comm->barrier();
  EXPECT_EQ(sum(values).item(), 6);
  const auto part = comm->split(0, 0, "part");
  EXPECT_EQ(part->size(), 1);
  EXPECT_TRUE(comm->allocate(100));
}

}  // namespace
}  // namespace weft::dist
