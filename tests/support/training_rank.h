// One rank of a training run that can be stopped, saved and gone on with.
#pragma once

#include "dist/checkpoint.h"
#include "optim/optim.h"
#include "tests/support/parallel_models.h"

#include <memory>
#include <string>
#include <vector>

namespace weft::test {

struct RankOptions {
  std::string strategy = "ddp";
  int64_t logical_shards = 4;
  std::string optimizer = "adamw";  // or sgd, lamb
  std::function<void(dist::ParallelOptions&)> change = {};
  DType dtype = f32;
};

class TrainingRank {
 public:
  TrainingRank(const TestModel& model, dist::Communicator& comm, const RankOptions& options);

  // Trains steps [from, to); their losses.
  std::vector<double> train(int64_t from, int64_t to);
  // Of parameters and buffers. A collective.
  uint64_t digest();
  // A Checkpointer of all this, with the options given.
  std::unique_ptr<dist::Checkpointer> checkpointer(dist::CheckpointOptions options);

  dist::Communicator& comm;
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<dist::Parallel> parallel;
  std::unique_ptr<optim::Optimizer> optimizer;

 private:
  TestModel test_;
};

}  // namespace weft::test
