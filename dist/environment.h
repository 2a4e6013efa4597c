// Who am I? What a launcher has told this process through its environment.
//
// Launchers are asked in this order, and the first that has spoken is believed:
//
//   launcher       rank and ranks                    on this host
//   weft           WEFT_RANK, WEFT_WORLD_SIZE        WEFT_LOCAL_RANK, WEFT_LOCAL_WORLD_SIZE
//   torchrun       RANK, WORLD_SIZE                  LOCAL_RANK, LOCAL_WORLD_SIZE
//   mpirun         OMPI_COMM_WORLD_RANK, _SIZE       OMPI_COMM_WORLD_LOCAL_RANK, _LOCAL_SIZE
//   mpiexec (PMI)  PMI_RANK, PMI_SIZE                MPI_LOCALRANKID, MPI_LOCALNRANKS
//   srun           SLURM_PROCID, SLURM_NTASKS        SLURM_LOCALID,
//   SLURM_STEP_TASKS_PER_NODE[SLURM_NODEID]
//
// Launchers may be nested (srun starts torchrun on each host): the inner one is nearer the top.
//  - Slurm counts inside a job step only (SLURM_STEP_ID); a batch script is not a rank.
//  - An mpirun, mpiexec or srun of a single task is as good as none: the program may start ranks of
//    its own.
//  - PMIX_RANK tells no number of ranks: with nothing that does it is an error.
//  - Without variables for this host all ranks are taken to be on it, if the local rank, where
//  there
//    is one, is the rank.
//  - MASTER_ADDR and MASTER_PORT (WEFT_MASTER_ADDR and WEFT_MASTER_PORT come first) hold whatever
//  the
//    launcher is. Else the address is the loopback on one host and the first host of Slurm's step,
//    and the port follows from the job's name. Ranks by hand (RANK, WORLD_SIZE), and those of
//    mpiexec (PMI) on several hosts, need MASTER_PORT or WEFT_JOB, which tell their launch from
//    others.
//
// Values that are no numbers, lack their partner or contradict each other (RANK=3 of WORLD_SIZE=2;
// RANK=0 left over in a shell where mpirun says 1) throw one Error that names the variables.
#pragma once

#include "core/error.h"

#include <cstdint>
#include <functional>
#include <string>

namespace weft::dist {

// More than any job has: a larger number of ranks is a mistake.
inline constexpr int64_t kMostRanks = 1 << 20;

// As std::getenv: null where there is none.
using GetEnvironment = std::function<const char*(const char* name)>;

struct RankEnvironment {
  std::string launcher = "none";  // "weft", "torchrun", "mpirun", "mpiexec", "srun"
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // Where rank 0 can be met; empty and 0 where nothing tells.
  std::string master_address;
  int master_port = 0;
  // The same on all ranks of a launch, another for every launch as far as the launcher tells them
  // apart: letters, digits and '-', at most 64. Empty if not launched. WEFT_JOB where it
  // is set; else made of the launcher's own identifiers.
  std::string job;

  bool launched() const { return launcher != "none"; }
  bool one_host() const { return local_size == size; }
};

// `parent` is the parent's process id: the job's name on one host where mpiexec gives no
// identifier.
RankEnvironment read_environment(const GetEnvironment& get, int64_t parent);
// Of this process.
RankEnvironment read_environment();

// Processors that this process may run on.
int own_processors();
// Threads for each of `local_size` ranks that share a host, at least 1: their launcher's processors
// divided among them, but no more than the launcher has bound this one to.
int threads_per_rank(int own_processors, int launcher_processors, int local_size);
// The same for this process, from the processors that it and its parent may run on.
int threads_per_rank(int local_size);

}  // namespace weft::dist
