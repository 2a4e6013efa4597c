// Who a process is, by every launcher's variables; what was read off real launchers, and what is
// damaged.
#include "dist/environment.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

namespace weft::dist {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment read(const Variables& variables) {
  return read_environment(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      4242);
}

std::string error_of_variables(const Variables& variables) {
  try {
    const RankEnvironment is = read(variables);
    return "no error, but rank " + std::to_string(is.rank) + " by " + is.launcher;
  } catch (const Error& error) {
    return error.what();
  }
}

Variables operator+(Variables some, const Variables& more) {
  for (const auto& [name, value] : more)
    some[name] = value;
  return some;
}

void expect_place(const RankEnvironment& is, const std::string& launcher, int rank, int size,
                  int local_rank, int local_size) {
  EXPECT_EQ(is.launcher, launcher);
  EXPECT_EQ(is.rank, rank);
  EXPECT_EQ(is.size, size);
  EXPECT_EQ(is.local_rank, local_rank);
  EXPECT_EQ(is.local_size, local_size);
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "1964900353"}};
const Variables kSrun = {{"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_STEP_NODELIST", "node[03-05,9]"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_SRUN_COMM_PORT", "38271"}};

TEST(Environment, NothingIsOneRankOfNoLauncher) {
  const RankEnvironment is = read({});
  EXPECT_FALSE(is.launched());
  expect_place(is, "none", 0, 1, 0, 1);
  EXPECT_EQ(is.job, "");
  // Without ranks these mean nothing yet, and empty values are none.
  EXPECT_FALSE(read({{"MASTER_PORT", "29500"}, {"RANK", ""}, {"WEFT_JOB", "x"}}).launched());
}

TEST(Environment, Weft) {
  const RankEnvironment is = read({{"WEFT_RANK", "2"},
                                   {"WEFT_WORLD_SIZE", "3"},
                                   {"WEFT_LOCAL_RANK", "0"},
                                   {"WEFT_LOCAL_WORLD_SIZE", "1"},
                                   {"WEFT_JOB", "weft-1-ab"},
                                   {"WEFT_MASTER_ADDR", "hosta"},
                                   {"WEFT_MASTER_PORT", "1234"},
                                   {"RANK", "2"},
                                   {"WORLD_SIZE", "3"},
                                   {"LOCAL_RANK", "0"},
                                   {"LOCAL_WORLD_SIZE", "1"},
                                   {"MASTER_ADDR", "other"},
                                   {"MASTER_PORT", "4321"}});
  expect_place(is, "weft", 2, 3, 0, 1);
  EXPECT_EQ(is.job, "weft-1-ab");
  EXPECT_EQ(is.master_address, "hosta");
  EXPECT_EQ(is.master_port, 1234);
  EXPECT_FALSE(is.one_host());
}

TEST(Environment, Torchrun) {
  const RankEnvironment is = read(kTorchrun);
  expect_place(is, "torchrun", 5, 8, 1, 4);
  EXPECT_EQ(is.master_address, "node0");
  EXPECT_EQ(is.master_port, 29500);
  EXPECT_EQ(is.job, "torchrun-none-node0-29500");
  // Another launch, another name; another rank, the same.
  EXPECT_NE(is.job, read(kTorchrun + Variables{{"MASTER_PORT", "29501"}}).job);
  // Agents of several hosts may have restarted their ranks unequally often.
  EXPECT_EQ(is.job, read(kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}}).job);
  EXPECT_EQ(is.job, read(kTorchrun + Variables{{"RANK", "4"}, {"LOCAL_RANK", "0"}}).job);
}

TEST(Environment, TorchrunOnOneHostCountsRestarts) {
  const Variables one_host = kTorchrun + Variables{{"LOCAL_RANK", "5"}, {"LOCAL_WORLD_SIZE", "8"}};
  EXPECT_EQ(read(one_host).job, "torchrun-none-0-node0-29500");
  EXPECT_EQ(read(one_host + Variables{{"TORCHELASTIC_RESTART_COUNT", "1"}}).job,
            "torchrun-none-1-node0-29500");
}

TEST(Environment, RanksByHandAreOfOneHost) {
  const RankEnvironment is = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  expect_place(is, "torchrun", 1, 2, 1, 2);
  EXPECT_EQ(is.master_address, "127.0.0.1");
  EXPECT_THAT(error_of_variables({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
              testing::HasSubstr("expected MASTER_PORT or WEFT_JOB"));
  // Rank 5 as the second of its host: how many are there?
  Variables unclear = kTorchrun;
  unclear.erase("LOCAL_WORLD_SIZE");
  EXPECT_THAT(error_of_variables(unclear), testing::HasSubstr("LOCAL_WORLD_SIZE"));
}

TEST(Environment, Mpirun) {
  const RankEnvironment is = read(kMpirun);
  expect_place(is, "mpirun", 1, 2, 1, 2);
  EXPECT_EQ(is.job, "mpirun-1964900353");
  EXPECT_EQ(is.master_address, "127.0.0.1");
  EXPECT_GE(is.master_port, 20000);
  EXPECT_LT(is.master_port, 32000);
  EXPECT_EQ(read(kMpirun + Variables{{"MASTER_PORT", "5"}}).master_port, 5);
}

TEST(Environment, MpiexecByPmi) {
  const Variables variables = {
      {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  // Two hosts, each with a parent of its own.
  const Variables master = {{"MASTER_ADDR", "n"}, {"MASTER_PORT", "29500"}};
  const RankEnvironment is = read(variables + master);
  expect_place(is, "mpiexec", 3, 4, 1, 2);
  EXPECT_EQ(is.job, "mpiexec-n-29500");
  EXPECT_EQ(is.master_address, "n");
  EXPECT_EQ(is.master_port, 29500);
  EXPECT_THAT(error_of_variables(variables),
              testing::HasSubstr("expected MASTER_PORT or WEFT_JOB, to tell this launch from "
                                 "others, beside rank 3 of 4 by mpiexec, got neither"));
  EXPECT_EQ(read(variables + Variables{{"WEFT_JOB", "j"}}).job, "j");
  // One host.
  const RankEnvironment near = read(variables + Variables{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  expect_place(near, "mpiexec", 1, 2, 1, 2);
  EXPECT_EQ(near.job, "mpiexec-4242");
  EXPECT_EQ(near.master_address, "127.0.0.1");
}

TEST(Environment, Srun) {
  const RankEnvironment is = read(kSrun);
  expect_place(is, "srun", 6, 7, 0, 1);
  EXPECT_EQ(is.job, "srun-77-0-38271");
  EXPECT_EQ(is.master_address, "node03");
  const Variables second = {{"SLURM_PROCID", "3"}, {"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "1"}};
  expect_place(read(kSrun + second), "srun", 3, 7, 1, 2);
  EXPECT_EQ(read(kSrun + second).job, is.job);
  EXPECT_EQ(read(kSrun + Variables{{"SLURM_STEP_NODELIST", "x,y"}}).master_address, "x");
  // By way of PMI the same.
  expect_place(read(kSrun + Variables{{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}), "srun", 6, 7, 0, 1);
}

TEST(Environment, SlurmCountsInsideAStepOnly) {
  Variables batch = kSrun;
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(read(batch).launched());
  EXPECT_FALSE(read(kSrun + Variables{{"SLURM_STEP_ID", "4294967291"}}).launched());
}

TEST(Environment, ASingleTaskIsAsGoodAsNone) {
  EXPECT_FALSE(
      read({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}})
          .launched());
  const RankEnvironment weft =
      read({{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "1"}, {"WEFT_JOB", "j"}});
  EXPECT_TRUE(weft.launched());
}

TEST(Environment, TheInnerLauncherIsBelieved) {
  // srun starts a torchrun on each of seven hosts, or mpirun its own tasks.
  expect_place(read(kSrun + kTorchrun), "torchrun", 5, 8, 1, 4);
  expect_place(read(kSrun + kMpirun), "mpirun", 1, 2, 1, 2);
}

TEST(Environment, LeftoversAreFound) {
  const Variables left = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "29500"}};
  EXPECT_THAT(error_of_variables(kMpirun + left),
              testing::HasSubstr("rank 0 of 1 from RANK but rank 1 of 2 "
                                 "from OMPI_COMM_WORLD_RANK"));
  EXPECT_THAT(
      error_of_variables(kTorchrun + Variables{{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "2"}}),
      testing::HasSubstr("rank 0 of 2 from WEFT_RANK and RANK=5 of WORLD_SIZE=8"));
}

TEST(Environment, DamageIsNamed) {
  const auto expect_error = [](const Variables& variables, const std::string& text) {
    EXPECT_THAT(
        error_of_variables(variables),
        testing::AllOf(testing::StartsWith("[environment] expected "), testing::HasSubstr(text)));
  };
  expect_error({{"RANK", "3"}, {"WORLD_SIZE", "2"}},
               "RANK to be less than WORLD_SIZE, got rank 3 of 2");
  expect_error({{"RANK", "1"}}, "got RANK=1 and WORLD_SIZE=(unset)");
  expect_error({{"WORLD_SIZE", "2"}}, "got RANK=(unset) and WORLD_SIZE=2");
  for (const char* bad : {"-1", "1x", "x", " 1", "1.0", "99999999999999999999", "2000000"})
    expect_error(kTorchrun + Variables{{"RANK", bad}},
                 "RANK to be an integer in [0, 1048575], got '" + std::string(bad) + "'");
  expect_error(kTorchrun + Variables{{"WORLD_SIZE", "0"}}, "WORLD_SIZE to be an integer");
  expect_error(kTorchrun + Variables{{"LOCAL_RANK", "4"}}, "local rank 4 of 4");
  expect_error(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "9"}}, "local rank 1 of 9");
  expect_error(kTorchrun + Variables{{"MASTER_PORT", "65536"}}, "MASTER_PORT to be an integer");
  expect_error(kMpirun + Variables{{"OMPI_COMM_WORLD_RANK", "two"}}, "OMPI_COMM_WORLD_RANK");
  expect_error(kSrun + Variables{{"SLURM_STEP_TASKS_PER_NODE", "2(x3"}}, "SLURM_NODEID=3");
  expect_error(kSrun + Variables{{"SLURM_STEP_TASKS_PER_NODE", "many"}}, "got 'many'");
  expect_error(kSrun + Variables{{"SLURM_NODEID", "4"}}, "SLURM_STEP_TASKS_PER_NODE");
  expect_error({{"PMIX_RANK", "0"}}, "number of ranks beside PMIX_RANK=0");
}

TEST(Environment, JobsAreNamesForBackends) {
  const auto job = [](const std::string& name) {
    return read({{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "2"}, {"WEFT_JOB", name}}).job;
  };
  EXPECT_EQ(job("a-B-3"), "a-B-3");
  EXPECT_THAT(job("../a/b_c"), testing::MatchesRegex("---a-b-c-[0-9]+"));
  EXPECT_NE(job("a/b"), job("a b"));
  const std::string longest(300, 'x');
  EXPECT_EQ(job(longest).size(), 64U);
  EXPECT_NE(job(longest), job(longest + "y"));
}

TEST(Environment, ProcessorsAreDivided) {
  EXPECT_EQ(threads_per_rank(16, 16, 4), 4);
  EXPECT_EQ(threads_per_rank(2, 2, 8), 1);
  EXPECT_EQ(threads_per_rank(4, 16, 4), 4);   // bound to four each
  EXPECT_EQ(threads_per_rank(8, 16, 16), 1);  // bound to sockets
  EXPECT_EQ(threads_per_rank(1, 16, 4), 1);   // bound to a core
  EXPECT_GE(threads_per_rank(1), 1);
}

}  // namespace
}  // namespace weft::dist
