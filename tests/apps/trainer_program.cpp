// A program of one's own under the trainer: a line through points, on one rank or many, and what
// fit() returns. Its worker function is what README shows.
//   trainer_program RUN WORKERS MAX_FAILURES INJECT
#include "dist/trainer.h"
#include "weft.h"

#include <cstdio>
#include <cstdlib>

using namespace weft;

namespace {

struct Line : nn::Module {
  nn::Linear linear{1, 1};
  Line() { add("linear", linear); }
  Tensor forward(const Tensor& x) override { return linear(x); }
};

void worker(dist::Session& session) {
  constexpr int64_t kBatch = 16;
  manual_seed(1);
  Line model;
  dist::Parallel parallel(
      model, session.comm(),
      {.strategy = session.scaling().strategy, .logical_shards = session.scaling().logical_shards});
  optim::Sgd optimizer(parallel.parameters(), {.lr = session.train_config().number("lr")});
  dist::Checkpointer checkpoints(model, parallel, session.checkpoint_options());
  checkpoints.add(optimizer);

  const Tensor x = reshape(linspace(-1, 1, kBatch), {kBatch, 1});
  const Tensor y = x * 3.0 + 1.0;
  int64_t step = 0;
  if (const auto resumed = session.resume(checkpoints)) step = resumed->progress.step;
  const int64_t steps = session.train_config().integer("steps");
  bool stop = false;
  while (step < steps && !stop) {
    session.begin_step(step + 1);
    parallel.begin_step(static_cast<uint64_t>(step));
    for (const dist::Shard& shard : parallel.shards()) {
      parallel.begin_shard(shard);
      const int64_t first = shard.first_row(kBatch);
      const int64_t rows = shard.rows(kBatch);
      session.begin(dist::Phase::forward);
      const Tensor loss = mse_loss(model(narrow(x, 0, first, rows)), narrow(y, 0, first, rows));
      session.begin(dist::Phase::backward);
      parallel.backward(loss);
    }
    session.begin(dist::Phase::optimizer);
    optimizer.step();
    const double loss = parallel.loss();
    const auto next = session.end_step({.step = ++step, .loss = static_cast<float>(loss)});
    if (next.save) session.report({{"loss", loss}}, checkpoints, {.step = step, .metric = loss});
    stop = next.stop;
  }
  checkpoints.wait();
}

}  // namespace

int main(int, char** argv) {
  dist::Trainer trainer(worker, {.values = {{"lr", 0.3}, {"steps", int64_t{40}}}},
                        {.workers = std::atoi(argv[2]), .logical_shards = 8},
                        {.name = "line",
                         .directory = argv[1],
                         .checkpoint = {.every = 10},
                         .failure = {.max_failures = std::atoi(argv[3])},
                         .inject = argv[4]});
  const dist::Result result = trainer.fit();
  std::printf("code %d, restarts %lld, failures %d, step %lld", result.exit_code,
              static_cast<long long>(result.restarts), result.failures,
              static_cast<long long>(result.step));
  for (const auto& [name, value] : result.metrics)
    std::printf(", %s %.17g", name.c_str(), value);
  std::printf(", checkpoint %s, best %s\n", result.checkpoint.c_str(),
              result.best_checkpoint.c_str());
  return result.exit_code;
}
