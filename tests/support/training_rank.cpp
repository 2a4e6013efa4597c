#include "tests/support/training_rank.h"

#include "core/random.h"
#include "ops/ops.h"

namespace weft::test {

TrainingRank::TrainingRank(const TestModel& test, dist::Communicator& communicator,
                           const RankOptions& given)
    : comm(communicator), test_(test) {
  model = test.make();
  if (given.dtype != f32) model->to(given.dtype);
  dist::ParallelOptions options;
  options.strategy = given.strategy;
  options.logical_shards = given.logical_shards;
  options.mean_over_shards = false;
  options.bucket_bytes = 1500;
  if (given.strategy == "fsdp") options.wrap.min_parameters = 300;
  if (given.change) given.change(options);
  parallel = std::make_unique<dist::Parallel>(*model, comm, options);
  const optim::Parameters parameters = parallel->parameters();
  if (given.optimizer == "sgd") {
    optimizer =
        std::make_unique<optim::Sgd>(parameters, optim::SgdOptions{.lr = 0.05, .momentum = 0.9});
  } else if (given.optimizer == "lamb") {
    optimizer = std::make_unique<optim::Lamb>(parameters, optim::LambOptions{.lr = 0.02});
  } else {
    optimizer = std::make_unique<optim::AdamW>(parameters, optim::AdamOptions{.lr = 0.01});
  }
}

std::vector<double> TrainingRank::train(int64_t from, int64_t to) {
  std::vector<double> losses;
  for (int64_t step = from; step < to; ++step) {
    parallel->begin_step(static_cast<uint64_t>(step));
    for (const dist::Shard& shard : parallel->shards()) {
      parallel->begin_shard(shard);
      const Rows rows = test_.rows(step, shard.first_row(kTestBatch), shard.rows(kTestBatch));
      const Tensor logits = (*model)(rows.input);
      parallel->backward(
          cross_entropy(weft::to(logits, f32), rows.target, {.reduction = Reduction::sum}) *
          (1.0 / kTestBatch));
    }
    optim::clip_grad_norm(parallel->parameters(), 0.5);
    optimizer->step();
    losses.push_back(parallel->loss());
  }
  return losses;
}

uint64_t TrainingRank::digest() {
  uint64_t digest = 0;
  parallel->with_full_parameters([&] { digest = digest_of(*model); });
  return digest;
}

std::unique_ptr<dist::Checkpointer> TrainingRank::checkpointer(dist::CheckpointOptions options) {
  auto made = std::make_unique<dist::Checkpointer>(*model, *parallel, std::move(options));
  made->add(*optimizer);
  return made;
}

}  // namespace weft::test
